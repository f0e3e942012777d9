package csisnapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
)

// heldVolume is a volume that is locked for a snapshot.
type heldVolume struct {
	// began is when the wait for the volume began, from which the time of the snapshot counts.
	began time.Time
	// unlock may be called more than once.
	unlock func()
}

// ErrBusy means that another backup kept a volume for as long as a snapshot may take.
var ErrBusy = errors.New("another backup has the volume")

// begunSnapshot is a snapshot that is made ahead of the turn of its claim.
type begunSnapshot struct {
	ready chan struct{} // closed once the others are set
	held  *heldVolume   // nil where the claim locks the volume itself, unless there is an error
	err   error         // ErrBusy: the claim does not wait again
}

// holdVolume locks the volume, or returns what Prestart locked, for which it waits. The time of the
// snapshot includes the wait.
func (s *Snapshotter) holdVolume(ctx context.Context, of *snapshotSubject) (*heldVolume, error) {
	s.mu.Lock()
	b := s.ahead[of.lockName()]
	s.mu.Unlock()
	if b == nil {
		return s.lockVolume(ctx, of)
	}
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if b.held == nil && b.err == nil {
		return s.lockVolume(ctx, of)
	}
	return b.held, b.err
}

// lockVolume waits for the volume.
func (s *Snapshotter) lockVolume(ctx context.Context, of *snapshotSubject) (*heldVolume, error) {
	h := &heldVolume{began: s.Clock.Now(), unlock: func() {}}
	if s.Lock == nil {
		return h, nil
	}
	limit := snapshotTimeout(s.Backup)
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	unlock, err := s.Lock(waiting, of.lockName())
	switch {
	case err == nil:
		h.unlock = sync.OnceFunc(unlock)
		return h, nil
	case ctx.Err() == nil && waiting.Err() != nil:
		return nil, fmt.Errorf("claim %s/%s: %w %s, which was not free within %s (csiSnapshotTimeout)",
			of.claim.Metadata.Namespace, of.claim.Metadata.Name, ErrBusy, of.volume.Name, limit)
	}
	return nil, err
}

// aheadAtOnce is for how many claims of a block objects of snapshots are created at once.
const aheadAtOnce = 32

// Prestart makes the snapshots of several claims without waiting for any, so that they are cut side by
// side. A volume that is busy delays no other. Each stays locked until its snapshot is cut, whatever
// the turn of its claim: none of them waits for another, so that two backups never wait for each
// other.
func (s *Snapshotter) Prestart(ctx context.Context, about []action.Keyed) {
	places := make(chan struct{}, aheadAtOnce)
	for _, a := range about {
		live := &corev1.PersistentVolumeClaim{}
		found, err := s.getObject(ctx, a.Namespace, a.Name, live)
		if err != nil || !found {
			continue
		}
		if of, err := s.findSubject(ctx, claimOf(live), a.Key); err == nil && of != nil && s.needsSnapshot(ctx, of) {
			s.beginSnapshot(ctx, of, places)
		}
	}
}

// beginSnapshot makes a snapshot in a goroutine of its own, unless that was begun. The goroutine takes one of the
// places while it creates the object, not while it waits for the volume.
func (s *Snapshotter) beginSnapshot(ctx context.Context, of *snapshotSubject, places chan struct{}) {
	b := &begunSnapshot{ready: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == nil {
		s.ahead = map[string]*begunSnapshot{}
	}
	if s.ahead[of.lockName()] != nil {
		return
	}
	s.ahead[of.lockName()] = b
	s.watching.Go(func() {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		h, made := s.beginLockedSnapshot(ctx, of, b, places, stop)
		close(b.ready)
		if made == nil {
			return
		}
		_, _, err := s.awaitHandle(watching, made, h.began)
		if watching.Err() != nil && ctx.Err() == nil { // unlocked
			return
		}
		s.releaseVolume(ctx, h, made, err)
	})
}

// beginLockedSnapshot locks the volume and creates the snapshot, and sets b, which holdVolume returns to the action on the
// claim. When that unlocks the volume, stop is called. It returns nil if there is no snapshot to wait for.
func (s *Snapshotter) beginLockedSnapshot(ctx context.Context, of *snapshotSubject, b *begunSnapshot, places chan struct{}, stop func()) (*heldVolume, *snapshotv1.VolumeSnapshot) {
	h, err := s.lockVolume(ctx, of)
	if err != nil {
		if errors.Is(err, ErrBusy) {
			b.err = err
		}
		return nil, nil
	}
	select {
	case places <- struct{}{}:
	case <-ctx.Done(): // nothing was made
		h.unlock()
		return nil, nil
	}
	made, err := s.createSnapshot(ctx, of)
	<-places
	if err != nil {
		if ctx.Err() == nil { // else nothing is known of it
			h.unlock()
		}
		return nil, nil
	}
	b.held = &heldVolume{began: h.began, unlock: func() { stop(); h.unlock() }}
	return h, made
}

// lastLook is the timeout of the read of a snapshot after the end of a context.
const lastLook = 2 * time.Second

// releaseVolume unlocks a volume after the wait for its snapshot ended with err. Where the end of ctx ended
// it the volume stays with the backup, unless the snapshot is cut.
func (s *Snapshotter) releaseVolume(ctx context.Context, h *heldVolume, made *snapshotv1.VolumeSnapshot, err error) {
	if err != nil && ctx.Err() != nil {
		looking, stop := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer stop()
		p, err := s.readPair(looking, made.Namespace, made.Name)
		if err != nil || p.snapshot == nil || p.snapshot.UID != made.UID || p.snapshotHandle() == "" {
			return
		}
	}
	h.unlock()
}

// Wait returns once no goroutine of Prestart runs; they end with the context of Prestart.
func (s *Snapshotter) Wait() { s.watching.Wait() }
