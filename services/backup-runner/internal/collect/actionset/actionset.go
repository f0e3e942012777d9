// Package actionset has the actions of a backup, bound to the resources that they apply to: what
// they see of the objects of a resource, and whether they may want one of them. A chain
// runs those that match an object, one after the other: each gets the object as the one before it
// left it.
package actionset

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
)

// Actions are called for the objects of one backup before they are stored. The zero value has none.
type Actions struct {
	// Items may change what is stored, and run in this order.
	Items []action.BackupItem
	// Blocks decide which objects are processed together.
	Blocks []action.ItemBlock
	// Asks are the only resources of which the actions name objects, so that no state is kept of
	// others. Empty means any.
	Asks []schema.GroupResource
	// PodVolumes is the action of file-system backups among Items; nil where there is none.
	PodVolumes PodVolumes
	// Warnings are about actions that are left out on purpose; the backup's first holder notes them.
	Warnings []string
	// Errors are about missing actions, whose effect on the backup is not known.
	Errors []string
	// IsProcessCrash reports whether the call with an error of Items may have failed because of another
	// one. Nil is always false.
	IsProcessCrash func(error) bool
	// IsNotSent reports whether the call with an error of Items certainly was not made. Nil is always
	// false.
	IsNotSent func(error) bool
	// Lines has what the actions' plugins log; nil if they do not.
	Lines *partwriter.PluginLines
	// Close, if not nil, is called once no action is called any more.
	Close func()
}

// PodVolumes are the file-system backups of a backup; podvolume.Backupper is one.
type PodVolumes interface {
	// Takes reports whether the data of a claim is taken so. With final all Pods have had their turn,
	// and the error says why one did not take it that was to.
	Takes(ctx context.Context, namespace, claim string, final bool) (bool, error)
	// Await waits until the data of Pods is taken or will not be; false means that stop was closed
	// before.
	Await(ctx context.Context, stop <-chan struct{}, pods []types.NamespacedName) (bool, error)
}

// None reports whether there are no actions.
func (a *Actions) None() bool { return len(a.Items)+len(a.Blocks) == 0 }
