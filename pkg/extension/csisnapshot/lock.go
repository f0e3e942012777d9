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

// held is a volume that is locked for a snapshot.
type held struct {
	// began is when the wait for the volume began, from which the time of the snapshot counts.
	began time.Time
	// unlock may be called more than once.
	unlock func()
}

// ErrBusy means that another backup kept a volume for as long as a snapshot may take.
var ErrBusy = errors.New("another backup has the volume")

// begun is a snapshot that is made ahead of the turn of its claim.
type begun struct {
	ready chan struct{} // closed once the others are set
	held  *held         // nil where the claim locks the volume itself, unless there is an error
	err   error         // ErrBusy: the claim does not wait again
}

// hold locks the volume, or returns what Ahead locked, for which it waits. The wait counts for the
// time of the snapshot.
func (s *Snapshotter) hold(ctx context.Context, of *subject) (*held, error) {
	s.mu.Lock()
	b := s.ahead[of.lockName()]
	s.mu.Unlock()
	if b == nil {
		return s.lock(ctx, of)
	}
	select {
	case <-b.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if b.held == nil && b.err == nil {
		return s.lock(ctx, of)
	}
	return b.held, b.err
}

// lock waits for the volume.
func (s *Snapshotter) lock(ctx context.Context, of *subject) (*held, error) {
	h := &held{began: s.Clock.Now(), unlock: func() {}}
	if s.Lock == nil {
		return h, nil
	}
	limit := timeout(s.Backup)
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

// Ahead makes the snapshots of several claims without waiting for any, so that they are cut side by
// side. A volume that is busy delays no other. Each stays locked until its snapshot is cut, whatever
// the turn of its claim: none of them waits for another, so that two backups never wait for each
// other.
func (s *Snapshotter) Ahead(ctx context.Context, about []action.Keyed) {
	places := make(chan struct{}, aheadAtOnce)
	for _, a := range about {
		live := &corev1.PersistentVolumeClaim{}
		found, err := s.get(ctx, a.Namespace, a.Name, live)
		if err != nil || !found {
			continue
		}
		if of, err := s.find(ctx, claimOf(live), a.Key); err == nil && of != nil {
			s.begin(ctx, of, places)
		}
	}
}

// begin makes a snapshot beside everything else, unless that was begun. It has a place while it
// creates the object, not while it waits for the volume.
func (s *Snapshotter) begin(ctx context.Context, of *subject, places chan struct{}) {
	b := &begun{ready: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == nil {
		s.ahead = map[string]*begun{}
	}
	if s.ahead[of.lockName()] != nil {
		return
	}
	s.ahead[of.lockName()] = b
	s.watching.Go(func() {
		watching, stop := context.WithCancel(ctx)
		defer stop()
		h, made := s.beginOne(ctx, of, b, places, stop)
		close(b.ready)
		if made == nil {
			return
		}
		_, _, err := s.await(watching, made, h.began)
		if watching.Err() != nil && ctx.Err() == nil { // unlocked
			return
		}
		s.release(ctx, h, made, err)
	})
}

// beginOne locks the volume and makes the snapshot, and sets what the turn of the claim goes by: once
// that unlocks the volume, stop is called. It returns nil where nothing is to be waited for.
func (s *Snapshotter) beginOne(ctx context.Context, of *subject, b *begun, places chan struct{}, stop func()) (*held, *snapshotv1.VolumeSnapshot) {
	h, err := s.lock(ctx, of)
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
	made, err := s.create(ctx, of)
	<-places
	if err != nil {
		if ctx.Err() == nil { // else nothing is known of it
			h.unlock()
		}
		return nil, nil
	}
	b.held = &held{began: h.began, unlock: func() { stop(); h.unlock() }}
	return h, made
}

// lastLook is the timeout of the read of a snapshot after the end of a context.
const lastLook = 2 * time.Second

// release unlocks a volume after the wait for its snapshot ended with err. Where the end of ctx ended
// it the volume stays with the backup, unless the snapshot is cut.
func (s *Snapshotter) release(ctx context.Context, h *held, made *snapshotv1.VolumeSnapshot, err error) {
	if err != nil && ctx.Err() != nil {
		looking, stop := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
		defer stop()
		p, err := s.look(looking, made.Namespace, made.Name)
		if err != nil || p.snapshot == nil || p.snapshot.UID != made.UID || p.handle() == "" {
			return
		}
	}
	h.unlock()
}

// Wait returns once nothing of Ahead is under way, which the end of its context brings about.
func (s *Snapshotter) Wait() { s.watching.Wait() }
