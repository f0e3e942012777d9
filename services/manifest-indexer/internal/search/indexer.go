package search

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

const (
	// passPeriod is how often it is looked whether the file is still there.
	passPeriod = time.Minute
	// retryPeriod is the least time between two attempts at a backup that could not be read.
	retryPeriod = 10 * time.Minute
	// openTimeout bounds the opening of a backup. A location that takes longer than slowFailure to fail is left
	// alone for passPeriod.
	openTimeout = 30 * time.Second
	slowFailure = time.Second
)

var errOpenTimeout = fmt.Errorf("the location has not answered in %s", openTimeout)

// Opener opens a location by name; the caller closes the store.
type Opener interface {
	OpenName(ctx context.Context, name string) (objectstore.Store, error)
}

// Config is what an Indexer needs.
type Config struct {
	Reader    client.Reader // uncached
	Cached    client.Reader // lists the metadata of Backups
	Namespace string
	Opener    Opener
	Clock     clock.WithTicker
	Log       *slog.Logger
}

// Indexer keeps a Database up to date with the Backups of the namespace, one backup after the other.
type Indexer struct {
	Config
	*Database
	wake rungroup.Signal
	// seen are the Backups as they were read last. Pass alone uses it.
	seen map[types.UID]*seenBackup
	// held has until when locations that are slow to fail are left alone. Pass alone uses it.
	held map[string]time.Time
	// wanted is how many backups should be indexed; negative before they were counted.
	wanted atomic.Int64
}

// seenBackup is a Backup at one of its versions.
type seenBackup struct {
	version string
	backup  *Backup   // nil where it holds nothing, or not yet
	retry   time.Time // when a backup that could not be read is tried again
}

// Coverage is what part of the backups is indexed.
type Coverage struct{ Indexed, Backups, NamesOnly int64 }

// NewIndexer returns an Indexer of an empty database.
func NewIndexer(c Config, d *Database) *Indexer {
	i := &Indexer{Config: c, Database: d, wake: rungroup.NewSignal(), seen: map[types.UID]*seenBackup{}, held: map[string]time.Time{}}
	i.wanted.Store(-1)
	return i
}

// Wake requests a pass soon; it never blocks.
func (i *Indexer) Wake() { i.wake.Wake() }

// Run makes passes until ctx ends, and then closes the database. Failures are logged and tried again.
func (i *Indexer) Run(ctx context.Context) error {
	err := rungroup.RunPeriodically(ctx, i.Clock, passPeriod, i.wake, func(ctx context.Context) {
		err := i.Pass(ctx)
		if errors.Is(err, ErrDamaged) && ctx.Err() == nil {
			i.Log.Warn("Search index is lost or damaged; it is built again", "error", err)
			if err = i.Reset(ctx); err == nil {
				err = i.Pass(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			i.Log.Error("Failed to index backups; will retry", "error", err)
		}
	})
	return errors.Join(err, i.Close())
}

// Coverage returns what part of the backups is indexed; ok is false as long as they are not counted.
func (i *Indexer) Coverage() (c Coverage, ok bool) {
	for _, b := range i.Backups() {
		c.Indexed++
		if b.NamesOnly {
			c.NamesOnly++
		}
	}
	wanted := i.wanted.Load()
	c.Backups = max(wanted, c.Indexed)
	return c, wanted >= 0
}

// Pass forgets the backups that are gone and adds those that are missing, those not tried before and the oldest
// first. One that cannot be read does not hold up the others, and a location that hangs no other one. A pass that
// is requested meanwhile ends it after the backup at hand.
func (i *Indexer) Pass(ctx context.Context) error {
	if err := i.withFile(func() error { return nil }); err != nil {
		return err
	}
	if err := i.readBackups(ctx); err != nil {
		return err
	}
	missing := map[string]*seenBackup{}
	for _, s := range i.seen {
		if s.backup != nil {
			missing[s.backup.UID] = s
		}
	}
	i.wanted.Store(int64(len(missing)))
	var errs []error
	forgotten := false
	for _, b := range i.Backups() {
		if missing[b.UID] == nil {
			forgotten = true
			errs = append(errs, i.ForgetBackup(ctx, b.UID))
		}
		delete(missing, b.UID)
	}
	if forgotten {
		errs = append(errs, i.Sweep(ctx))
	}
	due := slices.SortedFunc(maps.Values(missing), func(a, b *seenBackup) int { return cmp.Or(a.retry.Compare(b.retry), compareStart(a.backup, b.backup)) })
	for _, s := range due {
		began := i.Clock.Now()
		if ctx.Err() != nil || began.Before(s.retry) || began.Before(i.held[s.backup.Location]) {
			continue
		}
		err := i.indexBackup(ctx, *s.backup)
		if errors.Is(err, ErrDamaged) {
			return err
		}
		if err != nil {
			now := i.Clock.Now()
			s.retry = now.Add(retryPeriod)
			if now.Sub(began) > slowFailure {
				i.held[s.backup.Location] = now.Add(passPeriod)
			}
			errs = append(errs, fmt.Errorf("backup %q: %w", s.backup.Name, err))
		}
		if errors.Is(err, ErrFull) || len(i.wake) > 0 { // where it is full the others would be read in vain
			break
		}
	}
	return errors.Join(errs...)
}

// readBackups reads the Backups that changed.
func (i *Indexer) readBackups(ctx context.Context) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(velerov1.GroupVersion.WithKind("BackupList"))
	if err := i.Cached.List(ctx, list, client.InNamespace(i.Namespace)); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	seen := make(map[types.UID]*seenBackup, len(list.Items))
	for at := range list.Items {
		o := &list.Items[at]
		if s := i.seen[o.UID]; s != nil && s.version == o.ResourceVersion {
			seen[o.UID] = s
			continue
		}
		b := &velerov1.Backup{}
		err := i.Reader.Get(ctx, client.ObjectKeyFromObject(o), b)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("backup %q: %w", o.Name, err)
		}
		if err == nil && b.UID == o.UID {
			seen[o.UID] = &seenBackup{version: o.ResourceVersion, backup: newBackup(b)}
		}
	}
	i.seen = seen
	return nil
}

// newBackup returns nil for a backup that holds nothing, may still change, or is being deleted.
func newBackup(b *velerov1.Backup) *Backup {
	if p := b.Status.Phase; p != velerov1.BackupPhaseCompleted && p != velerov1.BackupPhasePartiallyFailed || b.DeletionTimestamp != nil || b.Spec.StorageLocation == "" {
		return nil
	}
	start := b.CreationTimestamp.Time
	if t := b.Status.StartTimestamp; t != nil {
		start = t.Time
	}
	return &Backup{
		UID: string(b.UID), Name: b.Name, Location: b.Spec.StorageLocation, Schedule: b.Labels[velerov1.LabelScheduleName], Start: start.UTC(), Scope: scopeOf(&b.Spec),
	}
}

// scopeOf has what decides which objects a backup holds.
func scopeOf(s *velerov1.BackupSpec) string {
	scope := velerov1.BackupSpec{
		IncludedNamespaces: s.IncludedNamespaces, ExcludedNamespaces: s.ExcludedNamespaces, IncludedResources: s.IncludedResources, ExcludedResources: s.ExcludedResources,
		IncludedClusterScopedResources: s.IncludedClusterScopedResources, ExcludedClusterScopedResources: s.ExcludedClusterScopedResources,
		IncludedNamespaceScopedResources: s.IncludedNamespaceScopedResources, ExcludedNamespaceScopedResources: s.ExcludedNamespaceScopedResources,
		LabelSelector: s.LabelSelector, OrLabelSelectors: s.OrLabelSelectors, IncludeClusterResources: s.IncludeClusterResources,
	}
	text, _ := json.Marshal(scope) // it came as JSON
	return string(text)
}

// indexBackup adds a backup from its own manifest, or from Velero's resource list where it has none that can be
// read: never from one that was made of the tarball later, so that all replicas say the same.
func (i *Indexer) indexBackup(ctx context.Context, b Backup) (err error) {
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := i.Clock.NewTimer(openTimeout)
	go func() {
		select {
		case <-timeout.C():
			cancel(errOpenTimeout)
		case <-reading.Done():
		}
	}()
	defer func() {
		timeout.Stop()
		if err != nil {
			err = errors.Join(err, context.Cause(reading))
		}
	}()
	store, err := i.Opener.OpenName(reading, b.Location)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	m, err := tarball.OpenManifest(reading, store, b.Name)
	if err == nil {
		timeout.Stop()
		err = i.AddBackup(ctx, b, fromManifest(reading, m))
	}
	if !errors.Is(err, objectstore.ErrNotFound) && !errors.Is(err, manifest.ErrCorrupt) {
		return err
	}
	list, err := store.Get(reading, layout.BackupResourceList(b.Name))
	if err != nil {
		return err
	}
	timeout.Stop()
	b.NamesOnly = true
	return errors.Join(i.AddBackup(ctx, b, fromResourceList(list)), list.Close())
}
