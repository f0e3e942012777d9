package plugin

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RestoreItemAction sees objects before they are restored, and may change what is created.
type RestoreItemAction interface {
	Action
	// Execute is called once per object and restore, in the order of BackupItemAction, and again
	// for an object whose call may not have been answered because a process died, the plugin's or
	// the server's. Its error keeps the object from being restored. A nil output leaves the object
	// as it is.
	Execute(ctx context.Context, in *RestoreInput) (*RestoreOutput, error)
	// AreAdditionalItemsReady is asked repeatedly after an output WithItemsWait, with those of the
	// additional items that exist by now, until it returns true or the wait ends; the object is
	// then restored. Its error ends the wait and counts as one of the restore. Embed ItemsReady if
	// you never wait.
	AreAdditionalItemsReady(ctx context.Context, restore *Job, items []ResourceIdentifier) (bool, error)
}

// RestoreInput is what an action gets to see of a restore.
type RestoreInput struct {
	// Item is the object as it would be created, as earlier actions left it; the action may change
	// it in place and return it.
	Item *unstructured.Unstructured
	// ItemFromBackup is the object as it was stored.
	ItemFromBackup *unstructured.Unstructured
	// Restore that creates it.
	Restore *Job
}

// RestoreOutput is what an action returns to the restore.
type RestoreOutput struct {
	// Item is what to create, nil for the object as it came. It may be of another kind that the cluster serves.
	Item *unstructured.Unstructured
	// AdditionalItems are restored before the object, once each, with all their actions.
	AdditionalItems []ResourceIdentifier
	// SkipRestore keeps the object from being created and ignores AdditionalItems. Later actions do
	// not see it.
	SkipRestore bool
	// WaitForAdditionalItems waits for AreAdditionalItemsReady before the object is created.
	WaitForAdditionalItems bool
	// AdditionalItemsReadyTimeout ends that wait, with an error beside the restored object; 0 for
	// the server's.
	AdditionalItemsReadyTimeout time.Duration
}

// NewRestoreOutput returns an output that creates the item.
func NewRestoreOutput(item *unstructured.Unstructured) *RestoreOutput {
	return &RestoreOutput{Item: item}
}

// WithAdditionalItems adds objects to restore.
func (o *RestoreOutput) WithAdditionalItems(items ...ResourceIdentifier) *RestoreOutput {
	o.AdditionalItems = append(o.AdditionalItems, items...)
	return o
}

// WithItemsWait restores the object only once its additional items are ready.
func (o *RestoreOutput) WithItemsWait() *RestoreOutput {
	o.WaitForAdditionalItems = true
	return o
}

// WithItemsWaitTimeout is WithItemsWait with a longest wait of the action's own. It must be
// positive.
func (o *RestoreOutput) WithItemsWaitTimeout(longest time.Duration) *RestoreOutput {
	o.AdditionalItemsReadyTimeout = longest
	return o.WithItemsWait()
}

// WithoutRestore keeps the object from being created.
func (o *RestoreOutput) WithoutRestore() *RestoreOutput {
	o.SkipRestore = true
	return o
}

// ItemsReady can be embedded by restore item actions that never wait.
type ItemsReady struct{}

// AreAdditionalItemsReady returns true.
func (ItemsReady) AreAdditionalItemsReady(context.Context, *Job, []ResourceIdentifier) (bool, error) {
	return true, nil
}
