// Package reference finds the objects that an object names in its body: the edges of the manifest
// beside the owner references.
//
// Built-in kinds without rules have no Finder and cost nothing. The others are walked once, from the
// field of interest on, without decoding the rest. For custom resources the rules are data: of users
// (rule.go), of the published types of some APIs (builtin.go), and what the schema of the kind's
// definition reveals (schema.go), in this order for each field.
//
// Field names and meanings of built-in kinds are those of the Kubernetes
// API (core/v1, apps/v1, batch/v1, networking.k8s.io/v1, storage.k8s.io/v1, autoscaling/v2,
// rbac.authorization.k8s.io/v1, admissionregistration.k8s.io/v1, apiextensions.k8s.io/v1,
// apiregistration.k8s.io/v1). What a default fills in or a controller derives (the default service
// account, claims from templates) is not in the body and no reference.
package reference

// Relations, as the manifest names them: the object ... the other.
const (
	// Claims is from a Pod or its template to the PersistentVolumeClaims it mounts.
	Claims = "claims"
	// Mounts is from a Pod or its template to ConfigMaps and Secrets in its volumes.
	Mounts = "mounts"
	// Reads is from a Pod or its template to ConfigMaps and Secrets in the environment of its
	// containers.
	Reads = "reads"
	// PullsWith is from a Pod, its template or a ServiceAccount to the Secrets of image registries.
	PullsWith = "pullsWith"
	// RunsAs is from a Pod or its template to its ServiceAccount.
	RunsAs = "runsAs"
	// RankedBy is from a Pod or its template to its PriorityClass.
	RankedBy = "rankedBy"
	// GovernedBy is from a StatefulSet to its Service.
	GovernedBy = "governedBy"
	// Binds is between a PersistentVolumeClaim and its PersistentVolume, in both directions.
	Binds = "binds"
	// ProvisionedBy is from a PersistentVolumeClaim or PersistentVolume to its StorageClass.
	ProvisionedBy = "provisionedBy"
	// FilledFrom is from a PersistentVolumeClaim to the snapshot, claim or populator its volume
	// gets its content from.
	FilledFrom = "filledFrom"
	// LimitedTo is from a ResourceQuota to the PriorityClasses it is for.
	LimitedTo = "limitedTo"
	// Calls is from webhook configurations, CustomResourceDefinitions and APIServices to the
	// Service the API server calls.
	Calls = "calls"
	// Scales is from a HorizontalPodAutoscaler to its target.
	Scales = "scales"
	// Grants is from a RoleBinding or ClusterRoleBinding to its role.
	Grants = "grants"
	// GrantsTo is from a RoleBinding or ClusterRoleBinding to the ServiceAccounts among its
	// subjects.
	GrantsTo = "grantsTo"
	// RoutesTo is from an Ingress to its Services.
	RoutesTo = "routesTo"
	// ServesWith is from an Ingress to the Secrets of its TLS certificates.
	ServesWith = "servesWith"
	// Holds is from a ServiceAccount to its Secrets.
	Holds = "holds"
	// DefinedBy is from a custom resource to its CustomResourceDefinition.
	DefinedBy = "definedBy"
	// Names is from a custom resource to any object, where no other relation is known.
	Names = "names"
	// Writes is from a custom resource to the Secret that its controller writes.
	Writes = "writes"
	// IssuedBy is from a certificate or a request for one to its issuer.
	IssuedBy = "issuedBy"
	// BelongsTo is from a part to the whole that it is for: a Machine to its Cluster.
	BelongsTo = "belongsTo"
	// BuiltOn is to the object that implements this one: a Cluster to its infrastructure.
	BuiltOn = "builtOn"
	// MadeFrom is to a class, template or source.
	MadeFrom = "madeFrom"
	// AttachedTo is from a route or policy to what it is for.
	AttachedTo = "attachedTo"
	// ConfiguredBy is to an object that holds parameters.
	ConfiguredBy = "configuredBy"
)
