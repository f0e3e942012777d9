package plugin

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// BackupItemAction sees objects as they are backed up, and may change what is stored.
type BackupItemAction interface {
	Action
	// Execute is called once per object and backup, and again for an object whose call may not have
	// been answered, or that was not stored, because a process died, the plugin's or the server's.
	// Actions run in the order of their names; Velero runs them binary by binary, each one's in the
	// order of their names. Its error keeps the object out of the backup. A nil output leaves the
	// object as it is.
	Execute(ctx context.Context, in *BackupInput) (*BackupOutput, error)
}

// BackupInput is what an action gets to see of a backup.
type BackupInput struct {
	// Item is the object as earlier actions left it; the action may change it in place and return
	// it.
	Item *unstructured.Unstructured
	// Backup it is stored in.
	Backup *Job
}

// BackupOutput is what an action returns to the backup.
type BackupOutput struct {
	// Item is what to store, nil for the object as it came. It must stay the same object: kind,
	// namespace and name.
	Item *unstructured.Unstructured
	// AdditionalItems are backed up before the object, once each, with all their actions. If one
	// fails, the object does.
	AdditionalItems []ResourceIdentifier
	// MustInclude has the additional items of all actions on this object backed up even where the
	// backup's filters leave them out.
	MustInclude bool
	// SkipBackup leaves the object out of the backup, without an error. Later actions do not see
	// it. Velero knows this from 1.18.1 on.
	SkipBackup bool
}

// NewBackupOutput returns an output that stores the item.
func NewBackupOutput(item *unstructured.Unstructured) *BackupOutput { return &BackupOutput{Item: item} }

// WithAdditionalItems adds objects to back up.
func (o *BackupOutput) WithAdditionalItems(items ...ResourceIdentifier) *BackupOutput {
	o.AdditionalItems = append(o.AdditionalItems, items...)
	return o
}

// WithMustInclude sets MustInclude.
func (o *BackupOutput) WithMustInclude() *BackupOutput {
	o.MustInclude = true
	return o
}

// WithoutBackup sets SkipBackup.
func (o *BackupOutput) WithoutBackup() *BackupOutput {
	o.SkipBackup = true
	return o
}

// ItemBlockAction names objects that must be backed up together, without anything in between.
type ItemBlockAction interface {
	Action
	// GetRelatedItems names the objects that belong to one. It sees the object before any backup
	// item action.
	GetRelatedItems(ctx context.Context, in *BackupInput) ([]ResourceIdentifier, error)
}

// DeleteItemAction sees the objects of a backup that is deleted, before any of its data is.
type DeleteItemAction interface {
	Action
	// Execute is called for each object as it is stored; changes to it are lost. Its error keeps
	// the backup listed; the next deletion calls again for this object. Actions run in the order of
	// their names.
	Execute(ctx context.Context, in *BackupInput) error
}
