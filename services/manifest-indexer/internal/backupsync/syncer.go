// Package backupsync makes Backup objects for the backups a bucket holds, and removes those whose
// data is gone.
package backupsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

// scanPeriod is how often it is looked whether a location is due.
const scanPeriod = 10 * time.Second

// Opener opens a location's store; the caller closes it.
type Opener interface {
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Config is what a Syncer needs.
type Config struct {
	Reader    client.Reader // uncached
	Cached    client.Reader // lists the locations, to find those that are due
	Client    client.Client
	Namespace string
	Opener    Opener
	Clock     clock.WithTicker
	Log       *slog.Logger
	Events    mark.Events // of what is not synced; nil for none
	// Period is how often a location without a period of its own is synced; 0 means never.
	Period time.Duration
}

// Syncer syncs locations that are due.
type Syncer struct {
	Config
	wake  rungroup.Signal
	limit int // of backups in the namespace
	// settled are the Backups that have no directory and are no orphans, with the version that was read.
	// Pass alone uses it.
	settled map[types.UID]string
	// warned are the warnings about backups without an object that were recorded. Pass alone uses it.
	warned map[hiddenBackup]string
}

// New returns a Syncer.
func New(c Config) *Syncer {
	return &Syncer{Config: c, wake: rungroup.NewSignal(), limit: maxBackups, settled: map[types.UID]string{}, warned: map[hiddenBackup]string{}}
}

// Wake requests a pass soon; it never blocks.
func (s *Syncer) Wake() { s.wake.Wake() }

// Run makes passes until ctx ends. Failures are logged and tried again.
func (s *Syncer) Run(ctx context.Context) error {
	return rungroup.RunPeriodically(ctx, s.Clock, scanPeriod, s.wake, func(ctx context.Context) {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("Failed to sync backups; will retry", "error", err)
		}
	})
}

// Pass syncs every location that is due, the default one first. One that fails does not hold up the
// others.
func (s *Syncer) Pass(ctx context.Context) error {
	var list velerov1.BackupStorageLocationList
	if err := s.Cached.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list backup storage locations: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b velerov1.BackupStorageLocation) int {
		switch {
		case a.Spec.Default == b.Spec.Default:
			return strings.Compare(a.Name, b.Name)
		case a.Spec.Default:
			return -1
		}
		return 1
	})
	var errs []error
	for i := range list.Items {
		loc := &list.Items[i]
		if !s.isSyncDue(loc) {
			continue
		}
		if err := s.syncLocation(ctx, loc); err != nil {
			errs = append(errs, fmt.Errorf("location %q: %w", loc.Name, err))
		}
	}
	return errors.Join(errs...)
}

// isSyncDue follows Velero 1.18: available, and not synced for the period of the location or else of the
// server.
func (s *Syncer) isSyncDue(loc *velerov1.BackupStorageLocation) bool {
	if loc.Status.Phase != velerov1.LocationPhaseAvailable {
		return false
	}
	period := s.Period
	if p := loc.Spec.BackupSyncPeriod; p != nil && p.Duration >= 0 {
		period = p.Duration
	}
	last := loc.Status.LastSyncedTime
	return period > 0 && (last == nil || s.Clock.Now().Sub(last.Time) >= period)
}

func (s *Syncer) syncLocation(ctx context.Context, loc *velerov1.BackupStorageLocation) (err error) {
	store, err := s.Opener.Open(ctx, loc)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	// The objects are listed before the bucket: a backup that ends in between is in the bucket
	// then, so that no finished backup is taken for an orphan.
	backups := &metav1.PartialObjectMetadataList{}
	backups.SetGroupVersionKind(velerov1.GroupVersion.WithKind("BackupList"))
	if err := s.Reader.List(ctx, backups, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	dirs, err := store.ListPrefixes(ctx, layout.BackupsDir)
	if err != nil {
		return err
	}
	stored := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		stored[strings.TrimSuffix(dir, "/")] = true
	}
	known := make(map[string]bool, len(backups.Items))
	for i := range backups.Items {
		known[backups.Items[i].Name] = true
	}
	failpoint.Hit("manifest-indexer/sync-listed")
	imported := s.importNew(ctx, loc, store, stored, known)
	s.reportHidden(ctx, loc, store, backups.Items, stored)
	if err := s.removeOrphans(ctx, loc, store, backups.Items, stored); err != nil {
		return errors.Join(imported, err)
	}
	failpoint.Hit("manifest-indexer/sync-before-mark")
	return errors.Join(imported, s.markSynced(ctx, loc))
}

// maxFailures is how many backups that cannot be read end an import: the bucket is away rather than
// they.
const maxFailures = 5

// maxBackups is how many backups the namespace may hold before no more are made from a bucket.
// Otherwise a writer of the bucket could fill the API server with them.
const maxBackups = 50_000

// importNew makes the objects that are missing. One that fails does not hold up the others; the
// next sync tries it again.
func (s *Syncer) importNew(ctx context.Context, loc *velerov1.BackupStorageLocation, store objectstore.Store, stored, known map[string]bool) error {
	var missing []string
	for name := range stored {
		if !known[name] {
			missing = append(missing, name)
		}
	}
	if room := max(0, s.limit-len(known)); len(missing) > room {
		slices.Sort(missing) // so that it is always the same ones
		s.warnOnce(loc, "", "BackupsNotSynced", fmt.Sprintf("%d backups in the bucket are not synced: more than %d have no object", len(missing)-room, s.limit))
		s.Log.Error("Location has too many backups; the rest in the bucket is not synced", "location", loc.Name, "left", len(missing)-room, "limit", s.limit)
		missing = missing[:room]
	}
	var errs []error
	for _, name := range missing {
		if len(errs) == maxFailures || ctx.Err() != nil {
			break
		}
		err := s.importBackup(ctx, loc, store, name)
		var bad *backupError
		if errors.As(err, &bad) {
			s.warnOnce(loc, name, "BackupNotSynced", fmt.Sprintf("backup %q in the bucket cannot be read: %v", name, bad.err))
			s.Log.Warn("Failed to import backup from the bucket; will retry with the next sync", "location", loc.Name, "backup", name, "error", bad.err)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("backup %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Syncer) markSynced(ctx context.Context, loc *velerov1.BackupStorageLocation) error {
	return client.IgnoreNotFound(kube.Update(ctx, s.Reader, s.Client, loc, func(l *velerov1.BackupStorageLocation) error {
		now := metav1.NewTime(s.Clock.Now())
		l.Status.LastSyncedTime = &now
		return nil
	}))
}
