package reference

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds that are referred to.
var (
	claims          = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	volumes         = schema.GroupKind{Kind: "PersistentVolume"}
	configMaps      = schema.GroupKind{Kind: "ConfigMap"}
	secrets         = schema.GroupKind{Kind: "Secret"}
	services        = schema.GroupKind{Kind: "Service"}
	serviceAccounts = schema.GroupKind{Kind: "ServiceAccount"}
	priorityClasses = schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}
	storageClasses  = schema.GroupKind{Group: "storage.k8s.io", Kind: "StorageClass"}
	definitions     = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

var rules = map[schema.GroupKind]rule{
	{Kind: "Pod"}:                       pod,
	{Kind: "ReplicationController"}:     template,
	{Group: "apps", Kind: "Deployment"}: template, {Group: "apps", Kind: "DaemonSet"}: template,
	{Group: "apps", Kind: "ReplicaSet"}:  template,
	{Group: "apps", Kind: "StatefulSet"}: statefulSet,
	{Group: "batch", Kind: "Job"}:        template,
	{Group: "batch", Kind: "CronJob"}:    cronJob,
	{Kind: "PersistentVolumeClaim"}:      volumeClaim,
	{Kind: "PersistentVolume"}:           volume,
	{Kind: "ResourceQuota"}:              quota,
	{Kind: "ServiceAccount"}:             serviceAccount,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: webhooks,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   webhooks,
	definitions: definition,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:            apiService,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:          autoscaler,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        binding,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: binding,
	{Group: "networking.k8s.io", Kind: "Ingress"}:                    ingress,
}

func volumeClaim(s *scan, raw []byte) {
	s.object(s.at(raw, "spec"), func(s *scan, key, value []byte) {
		switch string(key) {
		case "volumeName":
			s.refer(volumes, "", value, Binds)
		case "storageClassName":
			s.refer(storageClasses, "", value, ProvisionedBy)
		case "dataSource", "dataSourceRef":
			s.source(value)
		}
	})
}

// source adds a reference to what a claim is filled from. Without a namespace of its own that is
// beside the claim.
func (s *scan) source(value []byte) {
	namespace := s.namespace
	if other := string(s.str(s.at(value, "namespace"))); other != "" {
		namespace = other
	}
	s.whatever(string(s.str(s.at(value, "apiGroup"))), namespace, value, FilledFrom)
}

// quota adds references to the priority classes it is for.
func quota(s *scan, raw []byte) {
	s.list(s.within(raw, "spec", "scopeSelector", "matchExpressions"), func(s *scan, v []byte) {
		if string(s.str(s.at(v, "scopeName"))) == "PriorityClass" {
			s.list(s.at(v, "values"), func(s *scan, v []byte) { s.refer(priorityClasses, "", v, LimitedTo) })
		}
	})
}

func volume(s *scan, raw []byte) {
	s.object(s.at(raw, "spec"), func(s *scan, key, value []byte) {
		switch string(key) {
		case "claimRef":
			s.named(claims, value, Binds)
		case "storageClassName":
			s.refer(storageClasses, "", value, ProvisionedBy)
		}
	})
}

// named adds a reference to the {namespace, name} given; null is none, and neither is one without a
// namespace.
func (s *scan) named(kind schema.GroupKind, value []byte, relation string) {
	if namespace := string(s.str(s.at(value, "namespace"))); namespace != "" {
		s.refer(kind, namespace, s.at(value, "name"), relation)
	}
}

func serviceAccount(s *scan, raw []byte) {
	s.object(raw, func(s *scan, key, value []byte) {
		switch string(key) {
		case "secrets":
			s.list(value, func(s *scan, v []byte) { s.beside(secrets, s.at(v, "name"), Holds) })
		case "imagePullSecrets":
			s.list(value, pullSecret)
		}
	})
}

func webhooks(s *scan, raw []byte) {
	s.list(s.at(raw, "webhooks"), func(s *scan, v []byte) {
		s.named(services, s.within(v, "clientConfig", "service"), Calls)
	})
}

func definition(s *scan, raw []byte) {
	s.named(services, s.within(raw, "spec", "conversion", "webhook", "clientConfig", "service"), Calls)
}

func apiService(s *scan, raw []byte) {
	s.named(services, s.within(raw, "spec", "service"), Calls)
}

func autoscaler(s *scan, raw []byte) {
	target := s.within(raw, "spec", "scaleTargetRef")
	gv, err := schema.ParseGroupVersion(string(s.str(s.at(target, "apiVersion"))))
	if err != nil {
		s.malformed = true
		return
	}
	s.whatever(gv.Group, s.namespace, target, Scales)
}

// whatever adds a reference to the {kind, name} given.
func (s *scan) whatever(group, namespace string, value []byte, relation string) {
	if kind := string(s.str(s.at(value, "kind"))); kind != "" {
		s.refer(schema.GroupKind{Group: group, Kind: kind}, namespace, s.at(value, "name"), relation)
	}
}

func binding(s *scan, raw []byte) {
	s.object(raw, func(s *scan, key, value []byte) {
		switch string(key) {
		case "roleRef":
			s.role(value)
		case "subjects":
			s.list(value, subject)
		}
	})
}

func (s *scan) role(value []byte) {
	namespace := ""
	if string(s.str(s.at(value, "kind"))) == "Role" {
		namespace = s.namespace
	}
	s.whatever(string(s.str(s.at(value, "apiGroup"))), namespace, value, Grants)
}

func subject(s *scan, value []byte) {
	if string(s.str(s.at(value, "kind"))) == serviceAccounts.Kind && len(s.str(s.at(value, "apiGroup"))) == 0 {
		s.named(serviceAccounts, value, GrantsTo)
	}
}

func ingress(s *scan, raw []byte) {
	s.object(s.at(raw, "spec"), func(s *scan, key, value []byte) {
		switch string(key) {
		case "defaultBackend":
			backend(s, value)
		case "rules":
			s.list(value, func(s *scan, v []byte) {
				s.list(s.within(v, "http", "paths"), func(s *scan, v []byte) { backend(s, s.at(v, "backend")) })
			})
		case "tls":
			s.list(value, func(s *scan, v []byte) { s.beside(secrets, s.at(v, "secretName"), ServesWith) })
		}
	})
}

func backend(s *scan, value []byte) {
	s.beside(services, s.within(value, "service", "name"), RoutesTo)
}
