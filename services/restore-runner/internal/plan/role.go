package plan

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindRole is what a kind does to the objects of others, which decides when its objects may come.
type kindRole uint8

const (
	// roleNone is that of kinds whose objects controllers neither read nor act on.
	roleNone kindRole = iota
	// roleMaterial is that of kinds whose objects controllers read, and create anew when they are
	// missing, such as Secrets and PersistentVolumeClaims.
	roleMaterial
	// roleGuard is that of what restricts, or allows, the traffic of Pods from their start.
	roleGuard
	// rolePod is that of Pods.
	rolePod
	// roleWorkload is that of the built-in kinds whose controllers make Pods.
	roleWorkload
	// roleCustom is that of custom resources, whose controllers may create any object.
	roleCustom
	// roleAPI is that of APIServices.
	roleAPI
	// roleAdmission is that of what judges, or changes, the requests for all other objects.
	roleAdmission
)

var roles = map[schema.GroupKind]kindRole{
	{Kind: "Secret"}: roleMaterial, {Kind: "ConfigMap"}: roleMaterial, {Kind: "ServiceAccount"}: roleMaterial,
	{Kind: "Service"}: roleMaterial, {Kind: "Endpoints"}: roleMaterial, {Kind: "PersistentVolumeClaim"}: roleMaterial,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: roleGuard, {Group: "extensions", Kind: "NetworkPolicy"}: roleGuard,
	{Group: "cilium.io", Kind: "CiliumNetworkPolicy"}: roleGuard, {Group: "cilium.io", Kind: "CiliumClusterwideNetworkPolicy"}: roleGuard,
	{Group: "cilium.io", Kind: "CiliumCIDRGroup"}:           roleGuard,
	{Group: "crd.projectcalico.org", Kind: "NetworkPolicy"}: roleGuard, {Group: "crd.projectcalico.org", Kind: "GlobalNetworkPolicy"}: roleGuard,
	{Group: "crd.projectcalico.org", Kind: "NetworkSet"}: roleGuard, {Group: "crd.projectcalico.org", Kind: "GlobalNetworkSet"}: roleGuard,
	{Group: "crd.projectcalico.org", Kind: "Tier"}:      roleGuard,
	{Group: "projectcalico.org", Kind: "NetworkPolicy"}: roleGuard, {Group: "projectcalico.org", Kind: "GlobalNetworkPolicy"}: roleGuard,
	{Group: "projectcalico.org", Kind: "NetworkSet"}: roleGuard, {Group: "projectcalico.org", Kind: "GlobalNetworkSet"}: roleGuard,
	{Group: "projectcalico.org", Kind: "Tier"}:      roleGuard,
	{Group: "crd.antrea.io", Kind: "NetworkPolicy"}: roleGuard, {Group: "crd.antrea.io", Kind: "ClusterNetworkPolicy"}: roleGuard,
	{Group: "crd.antrea.io", Kind: "Group"}: roleGuard, {Group: "crd.antrea.io", Kind: "ClusterGroup"}: roleGuard, {Group: "crd.antrea.io", Kind: "Tier"}: roleGuard,
	{Group: "k8s.ovn.org", Kind: "EgressFirewall"}: roleGuard, {Group: "network.openshift.io", Kind: "EgressNetworkPolicy"}: roleGuard,
	{Kind: "Pod"}:                       rolePod,
	{Kind: "ReplicationController"}:     roleWorkload,
	{Group: "apps", Kind: "Deployment"}: roleWorkload, {Group: "apps", Kind: "ReplicaSet"}: roleWorkload,
	{Group: "apps", Kind: "StatefulSet"}: roleWorkload, {Group: "apps", Kind: "DaemonSet"}: roleWorkload,
	{Group: "batch", Kind: "Job"}: roleWorkload, {Group: "batch", Kind: "CronJob"}: roleWorkload,
	// Controllers make certificates, with new keys, for an Ingress whose Secret is missing:
	// https://cert-manager.io/docs/usage/ingress/
	{Group: "networking.k8s.io", Kind: "Ingress"}:                                     roleCustom,
	{Group: "extensions", Kind: "Ingress"}:                                            roleCustom,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:                             roleAPI,
	{Kind: "ResourceQuota"}:                                                           roleAdmission,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   roleAdmission,
	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     roleAdmission,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: roleAdmission,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   roleAdmission,
	{Group: "quota.openshift.io", Kind: "ClusterResourceQuota"}:                       roleAdmission,
	{Group: "kyverno.io", Kind: "ClusterPolicy"}:                                      roleAdmission,
	{Group: "kyverno.io", Kind: "Policy"}:                                             roleAdmission,
	// Admission of Pods reads it, so that it must not wait for them.
	{Group: "security.openshift.io", Kind: "SecurityContextConstraints"}: roleNone,
}

// groups have a role for all kinds that roles does not name. Kinds of other groups are custom
// resources, or served by an aggregated API.
var groups = map[string]kindRole{
	"": roleNone, "apps": roleNone, "batch": roleNone, "autoscaling": roleNone, "policy": roleNone, "extensions": roleNone,
	"admissionregistration.k8s.io": roleNone, "apiextensions.k8s.io": roleNone, "apiregistration.k8s.io": roleNone,
	"authentication.k8s.io": roleNone, "authorization.k8s.io": roleNone, "certificates.k8s.io": roleNone,
	"coordination.k8s.io": roleNone, "discovery.k8s.io": roleNone, "events.k8s.io": roleNone,
	"flowcontrol.apiserver.k8s.io": roleNone, "internal.apiserver.k8s.io": roleNone, "networking.k8s.io": roleNone,
	"node.k8s.io": roleNone, "rbac.authorization.k8s.io": roleNone, "resource.k8s.io": roleNone,
	"scheduling.k8s.io": roleNone, "storage.k8s.io": roleNone, "storagemigration.k8s.io": roleNone,
	// Claims name snapshots, which therefore come as early as they can.
	"snapshot.storage.k8s.io": roleNone, "velero.io": roleNone,
	"policy.networking.k8s.io": roleGuard, istioSecurity: roleGuard, "policy.linkerd.io": roleGuard,
	"constraints.gatekeeper.sh": roleAdmission, "mutations.gatekeeper.sh": roleAdmission, "policies.kyverno.io": roleAdmission,
}

// istioSecurity is the group of Istio's authorization. Its objects in the namespace istioRoot, by Istio's
// default, are in force in all namespaces.
const (
	istioSecurity = "security.istio.io"
	istioRoot     = "istio-system"
)

// clusterAPI is the group of Cluster API, and what the groups of its providers end with.
const clusterAPI = "cluster.x-k8s.io"

func roleOf(kind schema.GroupKind) kindRole {
	if r, ok := roles[kind]; ok {
		return r
	}
	if r, ok := groups[kind.Group]; ok {
		return r
	}
	// Controllers of Cluster API make nothing of a class or a template until a Cluster or Machines are made from it.
	if strings.HasSuffix(kind.Group, clusterAPI) && (kind.Kind == "ClusterClass" || strings.HasSuffix(kind.Kind, "Template")) {
		return roleNone
	}
	return roleCustom
}

// actsOnObjects reports that a controller acts on objects of the role.
func (r kindRole) actsOnObjects() bool { return r == rolePod || r == roleWorkload || r == roleCustom }

// groupOf returns the group of an apiVersion.
func groupOf(apiVersion string) string {
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return group
}
