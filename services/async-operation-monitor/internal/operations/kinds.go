package operations

import (
	"errors"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// Plugins knows what is registered; pluginhost.Operations is one.
type Plugins interface {
	// Has reports whether there is an action of that kind and name whose operations can be asked about.
	// It is an error where that is not known.
	Has(kind pluginhost.Kind, name string) (bool, error)
}

// Registered knows the actions whose operations can be asked about here.
type Registered struct{ Plugins Plugins }

// Kind implements monitor.Actions. The built-in actions of CSI snapshots are not among them: a backup
// that ended Completed after their operations would leave its VolumeSnapshots with the policy Delete
// in the cluster, whose removal takes what the backup names with it, since only snapshots that were
// made here are ended with it.
func (r Registered) Kind(job, name string) (string, error) {
	if job == operation.KindBackup && csisnapshot.Named(name) {
		return "", nil
	}
	var unclear error
	for _, kind := range kindsOf(job) {
		ok, err := r.Plugins.Has(kind, name)
		if err == nil && ok {
			return string(kind), nil
		}
		unclear = errors.Join(unclear, err)
	}
	return "", unclear
}

// kindsOf are what an action may be registered as that began an operation of a kind of job, where the
// name of the action alone is known. Both protocols give an operation of one binary the same ID.
func kindsOf(job string) []pluginhost.Kind {
	if job == operation.KindRestore {
		return []pluginhost.Kind{pluginhost.KindAsyncRestoreItemAction, pluginhost.KindRestoreItemActionV2}
	}
	return []pluginhost.Kind{pluginhost.KindAsyncBackupItemAction, pluginhost.KindBackupItemActionV2}
}
