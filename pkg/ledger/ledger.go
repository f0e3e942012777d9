// Package ledger keeps the one list of jobs that may run: ConfigMap
// holdfast-queue in the server namespace, changed by compare-and-swap only.
//
// No two entries overlap, for any number of schedulers and any pause of one of
// them. A job is first written here, then set ReadyToStart; a runner claims only
// what is listed.
package ledger

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is the name of the ConfigMap.
const Name = "holdfast-queue"

// All as the only namespace of an entry overlaps every other entry.
const All = "*"

// Entry is an admitted job.
type Entry struct {
	UID        types.UID `json:"uid"`
	Kind       string    `json:"kind"` // Backup or Restore
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	Namespaces []string  `json:"namespaces"` // sorted; [All] means every namespace
	Since      time.Time `json:"since"`
}

// Limits bound how many jobs of a kind are admitted at once; 0 means no limit.
type Limits struct{ Backups, Restores int }

// Ledger reads and changes the list. Safe for concurrent use.
type Ledger struct {
	reader    client.Reader
	client    client.Client
	namespace string
}

// New returns the ledger of a namespace. The reader must not be a cache.
func New(reader client.Reader, c client.Client, namespace string) *Ledger { panic("skeleton") }

// FullError says that the limit of a kind is reached.
type FullError struct {
	Kind    string
	Limit   int
	Running []Entry
}

// Error implements error.
func (e *FullError) Error() string { panic("skeleton") }

// OverlapError says which admitted job is in the way, and on which namespaces.
type OverlapError struct {
	With       Entry
	Namespaces []string
}

// Error implements error.
func (e *OverlapError) Error() string { panic("skeleton") }

// Admit adds an entry, or returns *FullError or *OverlapError. Admitting a UID
// again is success and changes nothing: the first entry's namespaces stand.
func (l *Ledger) Admit(ctx context.Context, e Entry, limits Limits) error { panic("skeleton") }

// Get returns the entry of a job; false when it is not admitted.
func (l *Ledger) Get(ctx context.Context, uid types.UID) (Entry, bool, error) { panic("skeleton") }

// Release removes an entry; an absent one is fine.
func (l *Ledger) Release(ctx context.Context, uid types.UID) error { panic("skeleton") }

// List returns all entries, oldest first.
func (l *Ledger) List(ctx context.Context) ([]Entry, error) { panic("skeleton") }

// NextSequence returns a number higher than all before it.
func (l *Ledger) NextSequence(ctx context.Context) (int64, error) { panic("skeleton") }
