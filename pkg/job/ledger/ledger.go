// Package ledger keeps the one list of jobs that may run: ConfigMap holdfast-queue in the server
// namespace, changed by compare-and-swap only.
//
// No two entries overlap, for any number of schedulers and any pause of one of them; only a restore
// with IgnoreBackups is admitted beside backups that run already. A job is first written here, then
// set ReadyToStart; a runner claims only what is listed.
package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is the name of the ConfigMap.
const Name = "holdfast-queue"

// The kinds of job an entry may have.
const (
	KindBackup  = "Backup"
	KindRestore = "Restore"
)

// ErrInvalidEntry reports an entry that cannot be admitted, naming the field.
var ErrInvalidEntry = errors.New("invalid ledger entry")

// ErrMoved is returned when a job that another one waits for has ended: read the ledger again.
var ErrMoved = errors.New("the ledger has moved on")

// retry paces compare-and-swap: 3 to 9 ms between attempts, about a minute in all.
var retry = wait.Backoff{Duration: 3 * time.Millisecond, Factor: 1, Jitter: 2, Steps: 10000}

// Limits bound how many jobs of a kind are admitted at once; 0 means no limit.
type Limits struct{ Backups, Restores int }

func (l Limits) limitOf(kind string) int {
	if kind == KindRestore {
		return l.Restores
	}
	return l.Backups
}

// Ledger reads and changes the list. Safe for concurrent use.
type Ledger struct {
	reader client.Reader
	client client.Client
	key    types.NamespacedName
}

// New returns the ledger of a namespace. The reader must not be a cache: what is decided on a stale
// list is caught by the swap, but only after a round trip.
func New(reader client.Reader, c client.Client, namespace string) *Ledger {
	return &Ledger{reader: reader, client: c, key: types.NamespacedName{Namespace: namespace, Name: Name}}
}

// Admit adds an entry and returns the stored one; errors are *FullError and *OverlapError among others. Admitting a UID
// again changes nothing and returns the first entry.
//
// While names entries that made jobs further ahead wait: if one of them has left the list, ErrMoved
// is returned, for such a job may now go first.
func (l *Ledger) Admit(ctx context.Context, e Entry, limits Limits, while ...types.UID) (Entry, error) {
	if err := e.normalizeFields(); err != nil {
		return Entry{}, err
	}
	return l.addEntry(ctx, e, func(entries []Entry) error {
		for _, uid := range while {
			if !slices.ContainsFunc(entries, func(o Entry) bool { return o.UID == uid }) {
				return ErrMoved
			}
		}
		return checkAdmissible(entries, e, limits)
	})
}

// Readmit adds the entry of a job that runs already, after the list was damaged: whatever it
// overlaps with and however many run, for without an entry overlapping jobs would be admitted. An
// existing entry is kept.
func (l *Ledger) Readmit(ctx context.Context, e Entry) error {
	if err := e.normalizeFields(); err != nil {
		return err
	}
	_, err := l.addEntry(ctx, e, func([]Entry) error { return nil })
	return err
}

// addEntry adds an entry that is not there yet, unless check refuses, and returns the one that is there then.
func (l *Ledger) addEntry(ctx context.Context, e Entry, check func(entries []Entry) error) (stored Entry, err error) {
	err = l.swapDocument(ctx, func(b *ledgerDocument) error {
		entries, err := b.decodeEntries()
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(entries, func(o Entry) bool { return o.UID == e.UID }); i >= 0 {
			stored = entries[i]
			return errUnchanged
		}
		if err := check(entries); err != nil {
			return err
		}
		stored = e
		stored.Beside = backupsBeside(entries, &e)
		if err := b.putEntry(stored); err != nil || b.sizeBytes() <= maxBytes {
			return err
		}
		return fullError(entries, e.Kind)
	})
	if err != nil {
		return Entry{}, err
	}
	return stored, nil
}

// fullError is the error of a job that has to wait until others leave the list.
func fullError(entries []Entry, kind string) error {
	running := slices.DeleteFunc(slices.Clone(entries), func(o Entry) bool { return o.Kind != kind })
	return &FullError{Kind: kind, Limit: len(running), Running: running, Space: true}
}

// checkAdmissible returns what of the admitted entries is in the way of e, if anything. An
// *OverlapError is returned before a *FullError: it lasts longer.
func checkAdmissible(entries []Entry, e Entry, limits Limits) error {
	var same []Entry
	for _, o := range entries {
		if shared := o.Blocks(&e); len(shared) > 0 {
			return &OverlapError{With: o, Namespaces: shared}
		}
		if o.Kind == e.Kind && !o.Idle {
			same = append(same, o)
		}
	}
	if limit := limits.limitOf(e.Kind); limit > 0 && len(same) >= limit {
		return &FullError{Kind: e.Kind, Limit: limit, Running: same}
	}
	return nil
}

// backupsBeside names the backups a restore that ignores them is admitted beside.
func backupsBeside(entries []Entry, e *Entry) []string {
	var names []string
	for i := range entries {
		if o := &entries[i]; o.Kind == KindBackup && len(Overlap(o.Namespaces, e.Namespaces)) > 0 {
			names = append(names, o.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Get returns the entry of a job; false when it is not admitted.
func (l *Ledger) Get(ctx context.Context, uid types.UID) (Entry, bool, error) {
	b, err := l.readDocument(ctx)
	if err != nil {
		return Entry{}, false, err
	}
	return b.getEntry(uid)
}

// Withdraw removes entries as they were read, in one write: a job that was admitted again since keeps its new one.
func (l *Ledger) Withdraw(ctx context.Context, entries ...Entry) error {
	return l.swapDocument(ctx, func(b *ledgerDocument) error {
		unchanged := errUnchanged
		for i := range entries {
			e := &entries[i]
			stored, found, err := b.getEntry(e.UID)
			if err != nil {
				return err
			}
			if !found || !stored.Since.Equal(e.Since) {
				continue
			}
			b.removeEntry(e.UID)
			unchanged = nil
		}
		return unchanged
	})
}

// SetIdle makes the entry of a restore Idle, as it was read.
func (l *Ledger) SetIdle(ctx context.Context, e Entry) error {
	return l.swapDocument(ctx, func(b *ledgerDocument) error {
		stored, found, err := b.getEntry(e.UID)
		if err != nil {
			return err
		}
		if !found || !stored.Since.Equal(e.Since) || stored.Idle {
			return errUnchanged
		}
		stored.Idle = true
		return b.putEntry(stored)
	})
}

// List returns all entries, oldest first.
func (l *Ledger) List(ctx context.Context) ([]Entry, error) {
	b, err := l.readDocument(ctx)
	if err != nil {
		return nil, err
	}
	entries, err := b.decodeEntries()
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	return entries, err
}

// NextSequences takes n numbers in one write and returns the first; the others follow it. All are
// higher than any returned before, and than above, which is the highest one in use: a list that was
// deleted does not begin at 1 again.
func (l *Ledger) NextSequences(ctx context.Context, n int, above int64) (first int64, err error) {
	err = l.swapDocument(ctx, func(b *ledgerDocument) error {
		var err error
		first, err = b.nextSequences(n, above)
		return err
	})
	return first, err
}

// errUnchanged ends a swap with success and without a write.
var errUnchanged = errors.New("unchanged")

// swapDocument applies change to the newest list until no other process wrote in between.
func (l *Ledger) swapDocument(ctx context.Context, change func(*ledgerDocument) error) error {
	err := wait.ExponentialBackoffWithContext(ctx, retry, func(ctx context.Context) (bool, error) {
		b, err := l.readDocument(ctx)
		if err != nil {
			return false, err
		}
		if err := change(b); err != nil {
			return false, err
		}
		err = l.writeDocument(ctx, b)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case err == nil:
		return nil
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("ledger %s: too many conflicts: %w", l.key, err)
	}
	return fmt.Errorf("ledger %s: %w", l.key, err)
}

func (l *Ledger) readDocument(ctx context.Context) (*ledgerDocument, error) {
	cm := &corev1.ConfigMap{}
	if err := l.reader.Get(ctx, l.key, cm); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	cm.Namespace, cm.Name = l.key.Namespace, l.key.Name
	return &ledgerDocument{cm}, nil
}

// writeDocument creates or replaces the list; resourceVersion makes it a swap.
func (l *Ledger) writeDocument(ctx context.Context, b *ledgerDocument) error {
	if b.cm.ResourceVersion == "" {
		return l.client.Create(ctx, b.cm)
	}
	return l.client.Update(ctx, b.cm)
}
