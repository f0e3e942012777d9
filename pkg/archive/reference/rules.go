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

var rules = map[schema.GroupKind]referenceRule{
	{Kind: "Pod"}:                       podReferences,
	{Kind: "ReplicationController"}:     podTemplateReferences,
	{Group: "apps", Kind: "Deployment"}: podTemplateReferences, {Group: "apps", Kind: "DaemonSet"}: podTemplateReferences,
	{Group: "apps", Kind: "ReplicaSet"}:  podTemplateReferences,
	{Group: "apps", Kind: "StatefulSet"}: statefulSet,
	{Group: "batch", Kind: "Job"}:        podTemplateReferences,
	{Group: "batch", Kind: "CronJob"}:    cronJob,
	{Kind: "PersistentVolumeClaim"}:      volumeClaim,
	{Kind: "PersistentVolume"}:           volumeReferences,
	{Kind: "ResourceQuota"}:              quotaReferences,
	{Kind: "ServiceAccount"}:             serviceAccount,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}: webhookReferences,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:   webhookReferences,
	definitions: definitionReferences,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:            apiService,
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:          autoscalerReferences,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        bindingReferences,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: bindingReferences,
	{Group: "networking.k8s.io", Kind: "Ingress"}:                    ingressReferences,
}

func volumeClaim(s *objectScan, raw []byte) {
	s.walkObject(s.valueAt(raw, "spec"), func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "volumeName":
			s.addReference(volumes, "", value, Binds)
		case "storageClassName":
			s.addReference(storageClasses, "", value, ProvisionedBy)
		case "dataSource", "dataSourceRef":
			s.addVolumeSource(value)
		}
	})
}

// addVolumeSource adds a reference to what a claim is filled from. Without a namespace of its own that is
// beside the claim.
func (s *objectScan) addVolumeSource(value []byte) {
	namespace := s.namespace
	if other := string(s.decodeString(s.valueAt(value, "namespace"))); other != "" {
		namespace = other
	}
	s.addTypedReference(string(s.decodeString(s.valueAt(value, "apiGroup"))), namespace, value, FilledFrom)
}

// quotaReferences adds references to the priority classes it is for.
func quotaReferences(s *objectScan, raw []byte) {
	s.walkList(s.valueWithin(raw, "spec", "scopeSelector", "matchExpressions"), func(s *objectScan, v []byte) {
		if string(s.decodeString(s.valueAt(v, "scopeName"))) == "PriorityClass" {
			s.walkList(s.valueAt(v, "values"), func(s *objectScan, v []byte) { s.addReference(priorityClasses, "", v, LimitedTo) })
		}
	})
}

func volumeReferences(s *objectScan, raw []byte) {
	s.walkObject(s.valueAt(raw, "spec"), func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "claimRef":
			s.addNamespacedReference(claims, value, Binds)
		case "storageClassName":
			s.addReference(storageClasses, "", value, ProvisionedBy)
		}
	})
}

// addNamespacedReference adds a reference to the {namespace, name} given; null is none, and neither is one without a
// namespace.
func (s *objectScan) addNamespacedReference(kind schema.GroupKind, value []byte, relation string) {
	if namespace := string(s.decodeString(s.valueAt(value, "namespace"))); namespace != "" {
		s.addReference(kind, namespace, s.valueAt(value, "name"), relation)
	}
}

func serviceAccount(s *objectScan, raw []byte) {
	s.walkObject(raw, func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "secrets":
			s.walkList(value, func(s *objectScan, v []byte) { s.addLocalReference(secrets, s.valueAt(v, "name"), Holds) })
		case "imagePullSecrets":
			s.walkList(value, pullSecret)
		}
	})
}

func webhookReferences(s *objectScan, raw []byte) {
	s.walkList(s.valueAt(raw, "webhooks"), func(s *objectScan, v []byte) {
		s.addNamespacedReference(services, s.valueWithin(v, "clientConfig", "service"), Calls)
	})
}

func definitionReferences(s *objectScan, raw []byte) {
	s.addNamespacedReference(services, s.valueWithin(raw, "spec", "conversion", "webhook", "clientConfig", "service"), Calls)
}

func apiService(s *objectScan, raw []byte) {
	s.addNamespacedReference(services, s.valueWithin(raw, "spec", "service"), Calls)
}

func autoscalerReferences(s *objectScan, raw []byte) {
	target := s.valueWithin(raw, "spec", "scaleTargetRef")
	gv, err := schema.ParseGroupVersion(string(s.decodeString(s.valueAt(target, "apiVersion"))))
	if err != nil {
		s.malformed = true
		return
	}
	s.addTypedReference(gv.Group, s.namespace, target, Scales)
}

// addTypedReference adds a reference to the {kind, name} given.
func (s *objectScan) addTypedReference(group, namespace string, value []byte, relation string) {
	if kind := string(s.decodeString(s.valueAt(value, "kind"))); kind != "" {
		s.addReference(schema.GroupKind{Group: group, Kind: kind}, namespace, s.valueAt(value, "name"), relation)
	}
}

func bindingReferences(s *objectScan, raw []byte) {
	s.walkObject(raw, func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "roleRef":
			s.addRoleReference(value)
		case "subjects":
			s.walkList(value, subjectReferences)
		}
	})
}

func (s *objectScan) addRoleReference(value []byte) {
	namespace := ""
	if string(s.decodeString(s.valueAt(value, "kind"))) == "Role" {
		namespace = s.namespace
	}
	s.addTypedReference(string(s.decodeString(s.valueAt(value, "apiGroup"))), namespace, value, Grants)
}

func subjectReferences(s *objectScan, value []byte) {
	if string(s.decodeString(s.valueAt(value, "kind"))) == serviceAccounts.Kind && len(s.decodeString(s.valueAt(value, "apiGroup"))) == 0 {
		s.addNamespacedReference(serviceAccounts, value, GrantsTo)
	}
}

func ingressReferences(s *objectScan, raw []byte) {
	s.walkObject(s.valueAt(raw, "spec"), func(s *objectScan, key, value []byte) {
		switch string(key) {
		case "defaultBackend":
			backendReferences(s, value)
		case "rules":
			s.walkList(value, func(s *objectScan, v []byte) {
				s.walkList(s.valueWithin(v, "http", "paths"), func(s *objectScan, v []byte) { backendReferences(s, s.valueAt(v, "backend")) })
			})
		case "tls":
			s.walkList(value, func(s *objectScan, v []byte) { s.addLocalReference(secrets, s.valueAt(v, "secretName"), ServesWith) })
		}
	})
}

func backendReferences(s *objectScan, value []byte) {
	s.addLocalReference(services, s.valueWithin(value, "service", "name"), RoutesTo)
}
