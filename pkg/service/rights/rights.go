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
	return []string{"queue-scheduler", "backup-runner", "restore-runner", "async-operation-monitor", "manifest-indexer", "deletion", "volume-mover"}
}

// RulesOf returns the rules of a service; an unknown one has none.
func RulesOf(service string, o Options) Rules {
	var r Rules
	switch service {
	case "queue-scheduler":
		r = schedulerRules()
	case "backup-runner":
		r = o.addOperations(backupRunner(o))
	case "restore-runner":
		r = o.addOperations(restoreRunner(o))
	case "async-operation-monitor":
		r = o.addOperations(monitorRules(o))
	case "manifest-indexer":
		r = indexerRules()
	case "deletion":
		r = deletionRules()
		if o.Reviews {
			r.Cluster = append(r.Cluster, methodsRule("/holdfast.volume.v1.VolumeService/ForgetSnapshots"))
		}
	case "volume-mover":
		r = moverRules()
	default:
		return Rules{}
	}
	r.Namespaced = append(slices.Clone(common), r.Namespaced...)
	if o.Reviews {
		r.Cluster = append(r.Cluster, policyRule("authentication.k8s.io", "tokenreviews", "create"), policyRule("authorization.k8s.io", "subjectaccessreviews", "create"))
	}
	return r
}

func schedulerRules() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, events, []rbacv1.PolicyRule{
			veleroRule([]string{"backups", "restores"}, "get", "list", "watch", "create", "patch"),
			veleroRule([]string{"schedules"}, "list", "watch", "patch"),
			veleroRule([]string{"backupstoragelocations", "volumesnapshotlocations"}, "list"),
			policyRule("", "configmaps", "get", "list", "watch", "create"), ruleForName("holdfast-queue", policyRule("", "configmaps", "update")),
			policyRule("apps", "deployments", "list"),
		}),
		Cluster: []rbacv1.PolicyRule{policyRule("", "namespaces", "get", "list")},
	}
}

func backupRunner(o Options) Rules {
	r := Rules{
		Namespaced: slices.Concat(duty, instance, events, []rbacv1.PolicyRule{
			veleroRule([]string{"backups"}, "get", "list", "watch", "patch"), veleroRule([]string{"schedules"}, "list", "watch"),
			veleroRule([]string{"volumesnapshotlocations"}, "get"), veleroRule([]string{"podvolumebackups"}, "create", "patch"),
			veleroRule([]string{"datauploads"}, "get", "create", "patch"),
			ruleForName("holdfast-queue", policyRule("", "configmaps", "get", "update")),
		}),
		Cluster: []rbacv1.PolicyRule{cluster, policyRule("*", "*", "list")},
	}
	if o.Hooks {
		r.Cluster = append(r.Cluster, policyRule("", "pods/exec", "create", "get"))
	}
	if o.CSI {
		r.Cluster = append(r.Cluster,
			policyRuleFor("", []string{"persistentvolumes", "persistentvolumeclaims"}, "get"),
			snapshotRule([]string{"volumesnapshots"}, "get", "create", "patch", "delete"),
			snapshotRule([]string{"volumesnapshotcontents"}, "get", "patch", "delete"))
	}
	return r
}

func restoreRunner(o Options) Rules {
	r := Rules{
		Namespaced: slices.Concat(duty, instance, events, []rbacv1.PolicyRule{
			veleroRule([]string{"restores"}, "get", "list", "watch", "patch"), veleroRule([]string{"schedules"}, "list", "watch"),
			veleroRule([]string{"backups", "volumesnapshotlocations"}, "get"),
			policyRule("", "configmaps", "get", "list"), policyRule("apps", "deployments", "list"),
		}),
		Cluster: []rbacv1.PolicyRule{
			policyRule("*", "*", "get", "list", "create", "patch", "delete"), policyRule("*", "*/finalizers", "update"), apiServices,
			policyRuleFor(rbacv1.GroupName, []string{"roles", "clusterroles"}, "escalate", "bind"),
		},
	}
	if o.CSI {
		r.Cluster = append(r.Cluster, policyRule("", "persistentvolumeclaims", "list"),
			snapshotRule([]string{"volumesnapshots", "volumesnapshotcontents", "volumesnapshotclasses"}, "list"))
	}
	return r
}

func monitorRules(o Options) Rules {
	r := Rules{
		Namespaced: slices.Concat(events, []rbacv1.PolicyRule{
			veleroRule([]string{"backups", "restores"}, "get", "list", "watch", "patch"), policyRule("coordination.k8s.io", "leases", "get"),
			veleroRule([]string{"podvolumebackups", "podvolumerestores", "datauploads", "datadownloads"}, "list", "patch"),
		}),
		Cluster: []rbacv1.PolicyRule{cluster},
	}
	if o.CSI {
		r.Cluster = append(r.Cluster, snapshotRule([]string{"volumesnapshots"}, "get", "delete"), snapshotRule([]string{"volumesnapshotcontents"}, "get", "patch", "delete"))
	}
	return r
}

// addOperations adds the right to call runners about operations in the processes of their plugins.
func (o Options) addOperations(r Rules) Rules {
	if o.Reviews {
		r.Cluster = append(r.Cluster, methodsRule("/holdfast.operation.v1.OperationService/*"))
	}
	return r
}

func indexerRules() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, events, []rbacv1.PolicyRule{
			veleroRule([]string{"backupstoragelocations"}, "list", "watch", "patch"),
			veleroRule([]string{"downloadrequests", "serverstatusrequests"}, "get", "list", "watch", "patch", "delete"),
			veleroRule([]string{"backups"}, "get", "list", "watch", "create", "patch", "delete"), veleroRule([]string{"podvolumebackups"}, "create"),
			veleroRule([]string{"restores", "schedules"}, "get"), policyRule("", "secrets", "create"),
		}),
	}
}

func deletionRules() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, instance, []rbacv1.PolicyRule{
			veleroRule([]string{"deletebackuprequests"}, "get", "list", "watch", "create", "patch", "delete"),
			veleroRule([]string{"backups"}, "get", "list", "patch", "delete"), veleroRule([]string{"restores"}, "list", "delete"),
			veleroRule([]string{"backupstoragelocations", "podvolumebackups", "datauploads"}, "list"), veleroRule([]string{"schedules"}, "list", "watch"),
			veleroRule([]string{"volumesnapshotlocations"}, "get"),
		}),
		Cluster: []rbacv1.PolicyRule{
			cluster, veleroRule([]string{"backups", "restores"}, "list"), apiServices,
			snapshotRule([]string{"volumesnapshots"}, "get", "list", "delete"), snapshotRule([]string{"volumesnapshotcontents"}, "get", "list", "create", "patch", "delete"),
			snapshotRule([]string{"volumesnapshotcontents/status"}, "patch"),
		},
	}
}

func moverRules() Rules {
	return Rules{
		Namespaced: slices.Concat(duty, events, []rbacv1.PolicyRule{
			veleroRule([]string{"podvolumebackups", "podvolumerestores", "datauploads", "datadownloads"}, "get", "list", "watch", "patch"),
			veleroRule([]string{"backuprepositories"}, "get", "list", "watch", "create", "patch", "delete"),
			policyRule("", "pods", "list", "watch", "create", "delete"), policyRule("", "pods/log", "get"), policyRule("", "pods/exec", "create", "get"),
			policyRule("", "secrets", "create", "delete"), veleroRule([]string{"backups"}, "get"),
			veleroRule([]string{"restores"}, "get"), policyRule("", "persistentvolumeclaims", "create", "delete"),
			snapshotRule([]string{"volumesnapshots"}, "create"),
		}),
		Cluster: []rbacv1.PolicyRule{
			policyRuleFor("", []string{"pods", "persistentvolumes", "persistentvolumeclaims", "namespaces"}, "get"),
			policyRule("", "pods", "list"), policyRuleFor("", []string{"persistentvolumes", "persistentvolumeclaims"}, "patch"), policyRule("storage.k8s.io", "storageclasses", "get"),
			snapshotRule([]string{"volumesnapshots"}, "get", "delete"), snapshotRule([]string{"volumesnapshotcontents"}, "get", "list", "create", "patch", "delete"),
		},
	}
}

// What several services share, under the names of the chart's templates.
var (
	common = []rbacv1.PolicyRule{veleroRule([]string{"backupstoragelocations"}, "get"), policyRule("", "secrets", "get")}

	duty     = []rbacv1.PolicyRule{policyRule("coordination.k8s.io", "leases", "get", "create", "update")}
	instance = []rbacv1.PolicyRule{policyRule("coordination.k8s.io", "leases", "get", "list", "create", "patch", "delete")}
	events   = []rbacv1.PolicyRule{policyRule("events.k8s.io", "events", "create", "patch")}

	cluster     = ruleForName("kube-system", policyRule("", "namespaces", "get"))
	apiServices = policyRule("apiregistration.k8s.io", "apiservices", "list")
)

// methodsRule is the right to call methods of a service.
func methodsRule(path string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{"post"}}
}

func policyRuleFor(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

func policyRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return policyRuleFor(group, []string{resource}, verbs...)
}

func veleroRule(resources []string, verbs ...string) rbacv1.PolicyRule {
	return policyRuleFor("velero.io", resources, verbs...)
}

func snapshotRule(resources []string, verbs ...string) rbacv1.PolicyRule {
	return policyRuleFor("snapshot.storage.k8s.io", resources, verbs...)
}

// ruleForName narrows a rule to objects of one name.
func ruleForName(name string, r rbacv1.PolicyRule) rbacv1.PolicyRule {
	r.ResourceNames = []string{name}
	return r
}
