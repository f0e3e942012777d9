package collect

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/volume"
)

// shots is what earlier holders recorded of snapshots. It does not change while
// snapshots are taken.
type shots struct {
	intended map[string]nativesnapshot.Snapshot // by volume
	decided  map[string]struct{}                // volumes nothing is left to do for
	// promised is true when volumes were left to be decided on.
	promised bool
}

func (s *shots) replay(rec *checkpoint.Record) {
	if s.intended == nil {
		s.intended, s.decided = map[string]nativesnapshot.Snapshot{}, map[string]struct{}{}
	}
	for i := range rec.Intended {
		s.intended[rec.Intended[i].Spec.PersistentVolumeName] = rec.Intended[i]
	}
	for i := range rec.Volumes {
		switch v := &rec.Volumes[i]; {
		case v.Pending:
			s.promised = true
		case v.PVName != "":
			s.decided[v.PVName] = struct{}{}
		}
	}
}

// chooseSnapshots settles whether snapshots are taken. What earlier holders left to
// be decided on is, whatever the spec says by now.
func (r *run) chooseSnapshots() {
	switch {
	case r.Snapshots == nil:
	case r.shots.promised:
		r.facts.claimsByChoice = false
	case !r.Snapshots.Wanted():
		r.Snapshots = nil
	}
}

// errShotUnclear is what is known of a snapshot that an earlier holder was about
// to take.
var errShotUnclear = errors.New("the runner ended around CreateSnapshot, which is not called again: the provider may have a snapshot with the tags velero.io/backup and velero.io/pv that nobody knows")

// snapshots decides on the volumes of what was collected, all of which is durable,
// and takes their snapshots: each once per backup, whoever holds it. That one is
// taken is durable before the call, and how it came out right after it.
func (r *run) snapshots(ctx context.Context, workers []*worker) error {
	if r.Snapshots == nil {
		return nil
	}
	defer r.Snapshots.Close()
	res, _ := r.Catalog.Lookup(volumeGR)
	left := r.facts.undecided()
	maps.DeleteFunc(left, func(name string, _ pending) bool {
		_, decided := r.shots.decided[name]
		return decided
	})
	queue := make(chan string, len(left))
	for _, name := range slices.Sorted(maps.Keys(left)) {
		queue <- name
	}
	close(queue)
	err := parallel(ctx, workers[:r.BlockWorkers], func(ctx context.Context, w *worker) error {
		for name := range queue {
			if r.stopping() {
				return ErrStopped
			}
			s := shot{worker: w, res: &res, name: name, pending: left[name]}
			if err := s.decide(ctx); err != nil {
				return err
			}
			if err := w.drain(); err != nil {
				return err
			}
			if len(w.record.Snapshots) == 0 && len(w.record.Volumes) < r.PartItems {
				continue // whoever takes over decides on these again
			}
			if err := w.flush(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.settle(ctx, workers)
}

// shot is one volume that is decided on.
type shot struct {
	*worker
	pending
	res  *resource.Resource
	name string
}

// decide takes the snapshot, or notes why there is none.
func (s *shot) decide(ctx context.Context) error {
	r := s.run
	if before, begun := r.shots.intended[s.name]; begun {
		before.Status.Phase = nativesnapshot.PhaseFailed
		return s.taken(nil, &before, nil, errShotUnclear)
	}
	if !s.stored {
		return s.untaken(nil)
	}
	found, err := r.read(ctx, s.res, action.Item{GroupResource: volumeGR, Name: s.name})
	if end := r.interrupted(ctx, err); end != nil {
		return end
	}
	switch {
	case err != nil:
		return s.untaken(err)
	case !found.found:
		return s.untaken(errors.New("the volume is gone"))
	}
	v, err := r.Snapshots.Find(ctx, found.Raw)
	if end := r.interrupted(ctx, err); end != nil {
		return end
	}
	switch {
	case v.Snapshot.Spec.Location == "":
		return s.untaken(err)
	case err != nil:
		v.Snapshot.Status.Phase = nativesnapshot.PhaseFailed
		return s.taken(v.PV, &v.Snapshot, nil, err)
	}
	unlock, err := r.lock(ctx, v.Snapshot.Spec.ProviderVolumeID)
	if end := r.interrupted(ctx, err); end != nil {
		return end
	}
	if err != nil {
		v.Snapshot.Status.Phase = nativesnapshot.PhaseFailed
		return s.taken(v.PV, &v.Snapshot, nil, err)
	}
	started := metav1.NewTime(r.Clock.Now())
	if err := r.intend(s.uploads, func(i *intents) { i.snapshots = append(i.snapshots, v.Snapshot) }); err != nil {
		return err
	}
	id, err := r.Snapshots.Take(s.uploads, &v)
	if id != "" { // should the bucket never learn of it
		r.Log.InfoContext(ctx, "snapshot taken", "snapshot", id, "volume", s.name, "location", v.Snapshot.Spec.Location)
	}
	if err != nil && s.uploads.Err() != nil {
		return context.Cause(s.uploads) // nobody knows, so the lock stays with the backup
	}
	unlock()
	v.Snapshot.Status = nativesnapshot.Status{ProviderSnapshotID: id, Phase: nativesnapshot.PhaseCompleted}
	if err != nil {
		v.Snapshot.Status.Phase = nativesnapshot.PhaseFailed
	}
	return s.taken(v.PV, &v.Snapshot, &started, err)
}

// lock waits until this backup alone takes a snapshot of the volume. It is unlocked
// only when it is known how that came out: until then another holder may have it.
func (r *run) lock(ctx context.Context, volumeID string) (unlock func(), err error) {
	if r.LockVolume == nil {
		return func() {}, nil
	}
	return r.LockVolume(ctx, volumeID)
}

// interrupted returns why what failed, or seemed to, says nothing about the volume:
// whoever takes over asks again.
func (r *run) interrupted(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && r.stopping():
		return ErrStopped // perhaps that is why
	}
	return nil
}

// taken notes how a snapshot came out.
func (s *shot) taken(pv *corev1.PersistentVolume, snapshot *nativesnapshot.Snapshot, started *metav1.Time, cause error) error {
	var claim *volume.Info
	if len(s.claims) > 0 {
		claim = &s.claims[0]
	}
	info := volume.Snapshot(pv, claim, snapshot)
	if started != nil {
		ended := metav1.NewTime(s.run.Clock.Now())
		info.StartTimestamp, info.CompletionTimestamp = started, &ended
	}
	s.record.Volumes = append(s.record.Volumes, info)
	s.record.Snapshots = append(s.record.Snapshots, *snapshot)
	if cause == nil {
		return nil
	}
	return s.fail(about(volumeGR, "", s.name, "no snapshot of this volume: its data is not backed up", cause))
}

// untaken notes that no location has a way to take the volume: a warning, or an
// error where that could not be asked, the backup insists on snapshots, or a CSI
// snapshot was to be taken. A location without its plugin is often one that Velero
// left behind.
func (s *shot) untaken(cause error) error {
	missing := new(nativesnapshot.NoPluginError)
	counts := ptr.Deref(s.run.Backup.Spec.SnapshotVolumes, false) || cause != nil && !errors.As(cause, &missing)
	entries := make([]joblog.Entry, 0, len(s.claims))
	for i := range s.claims {
		claim := s.claims[i]
		claim.Pending, claim.Skipped, claim.SkippedReason = false, true, volume.ReasonNoTaker
		s.record.Volumes = append(s.record.Volumes, claim)
		entries = append(entries, about(claimGR, claim.PVCNamespace, claim.PVCName, "volume data was not backed up: "+claim.SkippedReason, cause))
	}
	if len(entries) == 0 && counts {
		s.record.Volumes = append(s.record.Volumes, volume.Info{PVName: s.name, Skipped: true, SkippedReason: volume.ReasonNoTaker})
		entries = append(entries, about(volumeGR, "", s.name, "volume data was not backed up: "+volume.ReasonNoTaker, cause))
	}
	for _, e := range entries {
		if counts {
			if err := s.fail(e); err != nil {
				return err
			}
			continue
		}
		e.Level = joblog.Warning
		s.run.Progress.noted(1, 0)
		if err := s.note(e); err != nil {
			return err
		}
	}
	return nil
}
