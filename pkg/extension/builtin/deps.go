package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// Lister reads the objects a backup is made of. It is safe for concurrent use and keeps its own
// deadlines. Live is one.
type Lister interface {
	// Each calls visit for every object of the resource in the namespace (all of them for a
	// cluster-scoped resource and the namespace "") that the label selector accepts ("" accepts
	// all). It ends early with visit's first error. visit keeps nothing of the object; a resource
	// that the cluster does not have is no error and has no objects.
	Each(ctx context.Context, gr schema.GroupResource, namespace, selector string, visit func(*action.Object) error) error
}

// Target is what the actions ask of the cluster that is restored to. It is safe for concurrent use
// and keeps its own deadlines. Reader is one.
type Target interface {
	// Configs returns the ConfigMaps of the server's namespace that the label selector accepts.
	Configs(ctx context.Context, selector string) ([]Config, error)
	// StorageClassExists reports whether the class is in the cluster now.
	StorageClassExists(ctx context.Context, name string) (bool, error)
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

// ForRestore returns the actions of one restore. Those that a ConfigMap configures match no
// resource where there is none.
func ForRestore(target Target) []action.RestoreItem {
	return []action.RestoreItem{
		restorePod{named{"velero.io/pod", []string{"pods"}}},
		restorePodClaims{named{"velero.io/add-pvc-from-pod", []string{"pods"}}},
		restoreInitHook{named{"velero.io/init-restore-hook", []string{"pods"}}},
		restoreClaim{named{"velero.io/pvc", []string{"persistentvolumeclaims"}}},
		newChangeClass(target),
		newChangeImage(target),
	}
}
