package plan

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
)

// ownerPair is the controller of an object and the object.
type ownerPair struct{ owner, owned schema.GroupKind }

func kindOf(group, kind string) schema.GroupKind { return schema.GroupKind{Group: group, Kind: kind} }

// ownerRules are the references that a controller makes itself, because it adopts the owned objects
// by their labels or makes them anew, whatever they refer to. All other objects get their
// reference.
var ownerRules = map[ownerPair]Relation{
	// Built-in controllers adopt orphans that their selector matches:
	// https://github.com/kubernetes/design-proposals-archive/blob/main/api-machinery/controller-ref.md
	{kindOf("apps", "Deployment"), kindOf("apps", "ReplicaSet")}:          Adopt,
	{kindOf("apps", "ReplicaSet"), kindOf("", "Pod")}:                     Adopt,
	{kindOf("apps", "StatefulSet"), kindOf("", "Pod")}:                    Adopt,
	{kindOf("apps", "DaemonSet"), kindOf("", "Pod")}:                      Adopt,
	{kindOf("", "ReplicationController"), kindOf("", "Pod")}:              Adopt,
	{kindOf("apps", "StatefulSet"), kindOf("apps", "ControllerRevision")}: Adopt,
	{kindOf("apps", "DaemonSet"), kindOf("apps", "ControllerRevision")}:   Adopt,
	// A restored Job gets a selector of its own, which the stored Pods do not match.
	{kindOf("batch", "Job"), kindOf("", "Pod")}: Remake,
	// Their controllers remove Endpoints whose Service they do not find.
	{kindOf("", "Service"), kindOf("", "Endpoints")}: Hold,
	// What a run left behind would run on without it.
	{kindOf("tekton.dev", "TaskRun"), kindOf("", "Pod")}:   Remake,
	{kindOf("argoproj.io", "Workflow"), kindOf("", "Pod")}: Remake,
	// The operator makes instances of the claims that it finds by their labels, and Services and
	// Pods anew: https://cloudnative-pg.io/documentation/current/appendixes/backup_volumesnapshot/
	{kindOf("postgresql.cnpg.io", "Cluster"), kindOf("", "PersistentVolumeClaim")}: Adopt,
	{kindOf("postgresql.cnpg.io", "Cluster"), kindOf("", "Pod")}:                   Remake,
	{kindOf("postgresql.cnpg.io", "Cluster"), kindOf("", "Service")}:               Remake,
}

// ownerRule returns the rule about the reference of an object of a kind to its controller.
func ownerRule(kind schema.GroupKind, owner objmeta.Owner) (Relation, bool) {
	if !owner.Controller {
		return Late, false
	}
	r, ok := ownerRules[ownerPair{kindOf(groupOf(owner.APIVersion), owner.Kind), kind}]
	return r, ok
}
