package action

import (
	"context"
	"encoding/json"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

// Action is what all actions on objects have in common.
type Action interface {
	// Name is the registered name, "vendor.example/what". It is unique among actions of one
	// concern.
	Name() string
	// AppliesTo returns which objects the action is called for. It is called once per job.
	AppliesTo(ctx context.Context) (Selector, error)
}

// Backup is the backup an action works for. It is encoded once, however many calls carry it.
// Immutable.
type Backup struct {
	backup *velerov1.Backup
	raw    []byte
}

// NewBackup encodes the backup. b must not be changed afterwards.
func NewBackup(b *velerov1.Backup) (*Backup, error) {
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode backup: %w", err)
	}
	return &Backup{backup: b, raw: raw}, nil
}

// Backup returns the typed object, which must not be changed.
func (b *Backup) Backup() *velerov1.Backup { return b.backup }

// JSON returns the object as JSON, which must not be changed.
func (b *Backup) JSON() []byte { return b.raw }

// BackupItem is called for an object while it is backed up, and may change what is stored.
type BackupItem interface {
	Action
	// Execute gets the object as the actions before it left it. The result's Object has the same
	// kind, namespace and name.
	Execute(ctx context.Context, object *Object, backup *Backup) (BackupResult, error)
}

// BackupResult is what a BackupItem answered.
type BackupResult struct {
	// Object is what to store, never nil; the very object given means that it was left alone.
	Object *Object
	// Additional are objects to back up with this one.
	Additional []Item
	// OperationID, when not empty, names an operation that continues after the call, see Operations.
	// It may come with an error, where the rest of the answer could not be used.
	OperationID string
	// Process is the start ID of the plugin's process that runs the operation and whose end is its
	// end; empty for an operation outside of it.
	Process string
	// PostOperation are objects to fetch again once the operation is done.
	PostOperation []Item
	// Notes are messages about the object for the log of the backup. They are kept with the answer,
	// where the action implements BackupOperations; others are lost.
	Notes []Note
}

// Note is a message about an object. Warnings and errors count.
type Note struct {
	Level   joblog.Level `json:"level"`
	Message string       `json:"message"`
}

// BackupOperations is implemented by a BackupItem whose call may begin an operation.
type BackupOperations interface {
	// OperationKind returns what the action is registered as, for Operation.Kind.
	OperationKind() string
}

// BackupStarter is implemented by a BackupItem whose call carries an idempotency key, so that it
// may be repeated with the same key. Start takes the place of Execute, which only fails.
type BackupStarter interface {
	// Start is Execute with the key of this call, which is not empty. The same key means the same
	// operation.
	Start(ctx context.Context, object *Object, backup *Backup, key string) (BackupResult, error)
}

// Keyed is an object and the idempotency key of the call that is made for it.
type Keyed struct {
	Namespace, Name string
	Key             string
}

// Prestarter is implemented by a BackupStarter that can begin its work for several objects of an item
// block before the first of them has its turn.
type Prestarter interface {
	// Prestart begins what Start with these keys begins, and waits for nothing that it began. Failures
	// are Start's to report.
	Prestart(ctx context.Context, objects []Keyed)
}

// Preparer is implemented by an action or a VolumeSnapshotter whose calls need what may take long
// to come up, such as a process.
type Preparer interface {
	// Prepare brings that up and begins nothing else, so that a call that follows is made at once.
	Prepare(ctx context.Context) error
}

// ItemBlock finds the objects that have to be backed up together with one.
type ItemBlock interface {
	Action
	// Related returns the objects that belong into the object's block.
	Related(ctx context.Context, object *Object, backup *Backup) ([]Item, error)
}

// DeleteItem is called for each object of a backup before the backup is deleted.
type DeleteItem interface {
	Action
	// Execute gets the object as it is stored.
	Execute(ctx context.Context, object *Object, backup *Backup) error
}
