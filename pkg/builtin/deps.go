package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/action"
)

// Lister reads the objects a backup is made of. It is safe for concurrent use and keeps its own deadlines.
type Lister interface {
	// Each calls visit for every object of the resource in the namespace (all of them for a cluster-scoped resource and
	// the namespace "") that the label selector accepts ("" accepts all). It ends early with visit's first error. visit
	// keeps nothing of the object; a resource that the cluster does not have is no error and has no objects.
	Each(ctx context.Context, gr schema.GroupResource, namespace, selector string, visit func(*action.Object) error) error
}

// Finder tells what exists in the cluster that is restored to. It is safe for concurrent use and keeps its own deadlines.
type Finder interface {
	// Exists tells whether the object is in the cluster now.
	Exists(ctx context.Context, item action.Item) (bool, error)
}

// Configs finds the ConfigMaps that configure actions. It is safe for concurrent use and keeps its own deadlines.
type Configs interface {
	// Configs returns the ConfigMaps of the server's namespace that the label selector accepts.
	Configs(ctx context.Context, selector string) ([]Config, error)
}

// Config is what counts of one ConfigMap.
type Config struct {
	Name string
	// Data must not change afterwards.
	Data map[string]string
}

// ForBackup returns the actions of one backup; both lists share what they read.
func ForBackup(lister Lister) ([]action.BackupItem, []action.ItemBlock) {
	bindings := newBindings(lister)
	return []action.BackupItem{backupPod{podAction}, backupClaim{claimAction}, backupAccount{accountAction, bindings}},
		[]action.ItemBlock{blockPod{podAction}, newBlockClaim(lister), blockAccount{accountAction, bindings}}
}

// ForRestore returns the actions of one restore. Those that a ConfigMap configures match no resource where there is none.
func ForRestore(configs Configs, finder Finder) []action.RestoreItem {
	return []action.RestoreItem{
		restorePod{named{"velero.io/pod", []string{"pods"}}},
		restorePodClaims{named{"velero.io/add-pvc-from-pod", []string{"pods"}}},
		restoreClaim{named{"velero.io/pvc", []string{"persistentvolumeclaims"}}},
		newChangeClass(configs, finder),
		newChangeImage(configs),
	}
}

// Screener is implemented by those actions of ForBackup for which most objects are of no concern, so that these need not
// be decoded.
type Screener interface {
	// Concerns reports whether the action may have anything to say about the object with this JSON. If not, a call would
	// change nothing and return nothing. It allocates nothing and is safe for concurrent use.
	Concerns(raw []byte) bool
}
