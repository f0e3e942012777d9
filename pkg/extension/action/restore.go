package action

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Restore is the restore an action works for. It is encoded once, however many calls carry it.
// Immutable.
type Restore struct {
	restore *velerov1.Restore
	raw     []byte
}

// NewRestore encodes the restore. r must not be changed afterwards.
func NewRestore(r *velerov1.Restore) (*Restore, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode restore: %w", err)
	}
	return &Restore{restore: r, raw: raw}, nil
}

// Restore returns the typed object, which must not be changed.
func (r *Restore) Restore() *velerov1.Restore { return r.restore }

// JSON returns the object as JSON, which must not be changed.
func (r *Restore) JSON() []byte { return r.raw }

// RestoreItem is called for an object before it is created, and may change or skip it.
type RestoreItem interface {
	Action
	// Execute gets the object as the actions before it left it, and as it was backed up. The
	// result's Object has the same group, kind and name.
	Execute(ctx context.Context, object, fromBackup *Object, restore *Restore) (RestoreResult, error)
}

// RestoreResult is what a RestoreItem answered.
type RestoreResult struct {
	// Object is what to create; the very object given means that it was left alone. It is nil only
	// when Skip.
	Object *Object
	// Skip means that the object is not to be created; later actions are not asked and Additional
	// does not count.
	Skip bool
	// Additional are objects to restore before this one.
	Additional []Item
	// Wait means that this object is created only when those in Additional are ready, see
	// Readiness.
	Wait bool
	// WaitTimeout bounds that wait; 0 means the restore's default.
	WaitTimeout time.Duration
	// OperationID, when not empty, names an operation that continues after the call, see Operations,
	// also of an object with Skip. It may come with an error, where the rest of the answer could not
	// be used.
	OperationID string
	// Process is the start ID of the plugin's process that runs the operation and whose end is its
	// end; empty for an operation outside of it.
	Process string
}

// Readiness is implemented by a RestoreItem that may answer Wait.
type Readiness interface {
	// Ready reports whether these additional items, those that were restored or exist already, are
	// ready.
	Ready(ctx context.Context, items []Item, restore *Restore) (bool, error)
}

// RestoreOperations is implemented by a RestoreItem whose call may begin an operation.
type RestoreOperations interface {
	// OperationKind returns what the action is registered as, for Operation.Kind.
	OperationKind() string
}

// RestoreStarter is implemented by a RestoreItem whose call carries an idempotency key, so that it
// may be repeated with the same key. Start takes the place of Execute, which only fails.
type RestoreStarter interface {
	// Start is Execute with the key of this call, which is not empty. The same key means the same
	// operation.
	Start(ctx context.Context, object, fromBackup *Object, restore *Restore, key string) (RestoreResult, error)
}

// DryRunSafe is implemented by an action whose Execute changes nothing anywhere: dry runs call it.
type DryRunSafe interface {
	// DryRunSafe marks the action.
	DryRunSafe()
}
