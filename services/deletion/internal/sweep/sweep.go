// Package sweep removes from the bucket what dead or deleted backups and restores left: parts,
// sidecars, checkpoints, owner files, records and unfinished uploads.
//
// Right before a removal it reads again, uncached, the owner of the directory and the object that
// it was made for. Directories of another cluster, without an owner file (Velero's backups) or with
// an unreadable one are left alone; in one without an owner file records go of an object of this
// cluster that has ended. Every removal may be repeated and interrupted anywhere: the owner file is
// removed last. So the Lease behind it only saves work.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/service/rungroup"
)

// scanPeriod is the time between two checks for locations that are due, unless the interval is
// shorter.
const scanPeriod = time.Minute

// Snapshots removes the objects of CSI snapshots; csisnapshot.API does.
type Snapshots interface {
	// End removes those that the backup's own actions made, and what the drivers stored of those that
	// are not stored.
	End(ctx context.Context, of csisnapshot.Owner, stored func(snapshot types.NamespacedName) bool) error
}

// Opener opens a location's store; the caller closes it.
type Opener interface {
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Config is what a Sweeper needs. Everything but Metrics is required.
type Config struct {
	Reader    client.Reader // uncached; lists Backups and Restores of all namespaces
	Namespace string        // of the locations
	Opener    Opener
	Clock     clock.WithTicker
	Log       *slog.Logger
	Tracer    trace.Tracer
	Metrics   *Metrics
	// Interval is how often a location is swept. It is also swept when it is first seen to be
	// available.
	Interval time.Duration
	// Grace is how long an object must have been seen to be gone before what it left is removed: a
	// runner that still works for it has noticed by then.
	Grace time.Duration
	// CSI removes what is in the cluster of the CSI snapshots of a backup that is gone and that no file
	// in the bucket names.
	CSI Snapshots
}

// Sweeper sweeps every available location; of one that is ReadOnly what restores left there.
type Sweeper struct {
	Config
	cluster string // UID of namespace kube-system
	places  map[string]*locationState
}

// locationState is the state that a Sweeper keeps of a location.
type locationState struct {
	next time.Time
	gone map[string]time.Time // directory to when its object was first seen to be gone
}

// New returns a Sweeper.
func New(c Config) *Sweeper { return &Sweeper{Config: c, places: map[string]*locationState{}} }

// Run sweeps until ctx ends. Failures are logged and tried again. One call at a time.
func (s *Sweeper) Run(ctx context.Context) error {
	return rungroup.RunPeriodically(ctx, s.Clock, min(scanPeriod, s.Interval, s.Grace), nil, func(ctx context.Context) {
		if err := s.Pass(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("Failed to sweep leftovers; will retry", "error", err)
		}
	})
}

// Pass sweeps every location that is due. One that fails does not hold up the others.
func (s *Sweeper) Pass(ctx context.Context) error {
	var list velerov1.BackupStorageLocationList
	if err := s.Reader.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list backup storage locations: %w", err)
	}
	s.forgetLocations(list.Items)
	var errs []error
	for i := range list.Items {
		loc := &list.Items[i]
		if !isSweepable(loc) || !s.isSweepDue(loc) {
			continue
		}
		if err := s.sweepLocation(ctx, loc); err != nil {
			errs = append(errs, fmt.Errorf("location %q: %w", loc.Name, err))
		}
	}
	return errors.Join(errs...)
}

func isSweepable(loc *velerov1.BackupStorageLocation) bool {
	return loc.DeletionTimestamp == nil && loc.Status.Phase == velerov1.LocationPhaseAvailable
}

func (s *Sweeper) isSweepDue(loc *velerov1.BackupStorageLocation) bool {
	p := s.places[string(loc.UID)]
	return p == nil || !s.Clock.Now().Before(p.next)
}

// forgetLocations drops what is known of locations that are gone.
func (s *Sweeper) forgetLocations(locs []velerov1.BackupStorageLocation) {
	alive := make(map[string]bool, len(locs))
	for i := range locs {
		alive[string(locs[i].UID)] = true
	}
	for uid := range s.places {
		if !alive[uid] {
			delete(s.places, uid)
		}
	}
}

// sweepLocation sweeps one location and sets when it is due again: soon, if something only waits for its
// grace to end.
func (s *Sweeper) sweepLocation(ctx context.Context, loc *velerov1.BackupStorageLocation) error {
	known := s.places[string(loc.UID)]
	if known == nil {
		known = &locationState{gone: map[string]time.Time{}}
		s.places[string(loc.UID)] = known
	}
	p := &sweepPass{sweeper: s, place: known, seen: map[string]time.Time{}, owners: map[string]ownerFile{}, log: s.Log.With("location", loc.Name)}
	err := p.sweepLocation(ctx, loc)
	pause := s.Interval
	if p.soon {
		pause = min(pause, s.Grace)
	}
	if err == nil {
		known.gone = p.seen
	} else { // what the pass did not reach
		maps.Copy(known.gone, p.seen)
	}
	known.next = s.Clock.Now().Add(pause)
	return err
}

// clusterUID returns the UID of namespace kube-system, which identifies the cluster.
func (s *Sweeper) clusterUID(ctx context.Context) (string, error) {
	if s.cluster != "" {
		return s.cluster, nil
	}
	uid, err := kube.ClusterUID(ctx, s.Reader)
	s.cluster = uid
	return uid, err
}
