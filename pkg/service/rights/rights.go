// Package rights has what each service may do at the API server, as the helm chart grants it, for
// programs that check whether it really may. A test of the chart compares the two; docs/rights.md
// says what each rule is for.
package rights

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Options are the settings of the chart that decide which rules there are.
type Options struct {
	// CSI is the feature EnableCSI.
	CSI bool
	// Hooks are commands in Pods.
	Hooks bool
	// Reviews is auth: kubernetes.
	Reviews bool
}

// Rules are those of one service.
type Rules struct {
	// Namespaced hold in the server namespace, Cluster everywhere.
	Namespaced, Cluster []rbacv1.PolicyRule
}

// Services returns the names of the services, in the order of data through them.
func Services() []string {
	return []string{"queue-scheduler", "backup-runner", "restore-runner", "async-operation-monitor", "manifest-indexer", "deletion"}
}

// Of returns the rules of a service; an unknown one has none.
func Of(service string, o Options) Rules {
	var r Rules
	switch service {
	case "queue-scheduler":
		r = scheduler()
	case "backup-runner":
		r = backupRunner(o)
	case "restore-runner":
		r = restoreRunner(o)
	case "async-operation-monitor":
		r = monitor(o)
	case "manifest-indexer":
		r = indexer()
	case "deletion":
		r = deletion()
	default:
		return Rules{}
	}
	r.Namespaced = append(slices.Clone(common), r.Namespaced...)
	if o.Reviews {
		r.Cluster = append(r.Cluster, rule("authentication.k8s.io", "tokenreviews", "create"), rule("authorization.k8s.io", "subjectaccessreviews", "create"))
	}
	return r
}

func scheduler() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, events, []rbacv1.PolicyRule{
			velero([]string{"backups", "restores"}, "get", "list", "watch", "create", "patch"),
			velero([]string{"schedules"}, "list", "watch", "patch"),
			velero([]string{"backupstoragelocations", "volumesnapshotlocations"}, "list"),
			rule("", "configmaps", "get", "list", "watch", "create"), only("holdfast-queue", rule("", "configmaps", "update")),
			rule("apps", "deployments", "list"),
		}),
		Cluster: []rbacv1.PolicyRule{rule("", "namespaces", "get", "list")},
	}
}

func backupRunner(o Options) Rules {
	r := Rules{
		Namespaced: slices.Concat(duty, instance, events, []rbacv1.PolicyRule{
			velero([]string{"backups"}, "get", "list", "watch", "patch"), velero([]string{"schedules"}, "list", "watch"),
			velero([]string{"volumesnapshotlocations"}, "get"),
			only("holdfast-queue", rule("", "configmaps", "get", "update")),
		}),
		Cluster: []rbacv1.PolicyRule{cluster, rule("*", "*", "list")},
	}
	if o.Hooks {
		r.Cluster = append(r.Cluster, rule("", "pods/exec", "create", "get"))
	}
	if o.CSI {
		r.Cluster = append(r.Cluster,
			rules("", []string{"persistentvolumes", "persistentvolumeclaims"}, "get"),
			snapshot([]string{"volumesnapshots"}, "get", "create", "patch", "delete"),
			snapshot([]string{"volumesnapshotcontents"}, "get", "patch", "delete"))
	}
	return r
}

func restoreRunner(o Options) Rules {
	r := Rules{
		Namespaced: slices.Concat(duty, instance, events, []rbacv1.PolicyRule{
			velero([]string{"restores"}, "get", "list", "watch", "patch"), velero([]string{"schedules"}, "list", "watch"),
			velero([]string{"backups", "volumesnapshotlocations"}, "get"),
			rule("", "configmaps", "get", "list"), rule("apps", "deployments", "list"),
		}),
		Cluster: []rbacv1.PolicyRule{
			rule("*", "*", "get", "create", "patch", "delete"), rule("*", "*/finalizers", "update"), apiServices,
			rules(rbacv1.GroupName, []string{"roles", "clusterroles"}, "escalate", "bind"),
		},
	}
	if o.CSI {
		r.Cluster = append(r.Cluster, rule("", "persistentvolumeclaims", "list"),
			snapshot([]string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"}, "list"))
	}
	return r
}

func monitor(o Options) Rules {
	r := Rules{
		Namespaced: slices.Concat(events, []rbacv1.PolicyRule{
			velero([]string{"backups", "restores"}, "get", "list", "watch", "patch"), rule("coordination.k8s.io", "leases", "get"),
		}),
		Cluster: []rbacv1.PolicyRule{cluster},
	}
	if o.CSI {
		r.Cluster = append(r.Cluster, snapshot([]string{"volumesnapshots"}, "get", "delete"), snapshot([]string{"volumesnapshotcontents"}, "get", "patch", "delete"))
	}
	if o.Reviews {
		r.Cluster = append(r.Cluster, rbacv1.PolicyRule{NonResourceURLs: []string{"/holdfast.operation.v1.OperationService/*"}, Verbs: []string{"post"}})
	}
	return r
}

func indexer() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, events, []rbacv1.PolicyRule{
			velero([]string{"backupstoragelocations"}, "list", "watch", "patch"),
			velero([]string{"downloadrequests", "serverstatusrequests"}, "get", "list", "watch", "patch", "delete"),
			velero([]string{"backups"}, "get", "list", "create", "delete"), velero([]string{"podvolumebackups"}, "create"),
			velero([]string{"restores", "schedules"}, "get"), rule("", "secrets", "create"),
		}),
	}
}

func deletion() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, instance, []rbacv1.PolicyRule{
			velero([]string{"deletebackuprequests"}, "get", "list", "watch", "create", "patch", "delete"),
			velero([]string{"backups"}, "get", "list", "patch", "delete"), velero([]string{"restores"}, "list", "delete"),
			velero([]string{"backupstoragelocations", "podvolumebackups", "datauploads"}, "list"), velero([]string{"schedules"}, "list", "watch"),
			velero([]string{"volumesnapshotlocations"}, "get"),
		}),
		Cluster: []rbacv1.PolicyRule{
			cluster, velero([]string{"backups", "restores"}, "list"), apiServices,
			snapshot([]string{"volumesnapshots"}, "get", "list", "delete"), snapshot([]string{"volumesnapshotcontents"}, "get", "list", "create", "patch", "delete"),
			snapshot([]string{"volumesnapshotcontents/status"}, "patch"),
		},
	}
}

// What several services share, under the names of the chart's templates.
var (
	common = []rbacv1.PolicyRule{velero([]string{"backupstoragelocations"}, "get"), rule("", "secrets", "get")}

	duty     = []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "get", "create", "update")}
	instance = []rbacv1.PolicyRule{rule("coordination.k8s.io", "leases", "get", "list", "create", "patch", "delete")}
	events   = []rbacv1.PolicyRule{rule("events.k8s.io", "events", "create", "patch")}

	cluster     = only("kube-system", rule("", "namespaces", "get"))
	apiServices = rule("apiregistration.k8s.io", "apiservices", "list")
)

func rules(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rules(group, []string{resource}, verbs...)
}

func velero(resources []string, verbs ...string) rbacv1.PolicyRule {
	return rules("velero.io", resources, verbs...)
}

func snapshot(resources []string, verbs ...string) rbacv1.PolicyRule {
	return rules("snapshot.storage.k8s.io", resources, verbs...)
}

// only narrows a rule to objects of one name.
func only(name string, r rbacv1.PolicyRule) rbacv1.PolicyRule {
	r.ResourceNames = []string{name}
	return r
}
