package csisnapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	// err is why the volume could not be locked ahead.
	err error
}

// ErrBusy means that another backup kept a volume for as long as a snapshot may take.
var ErrBusy = errors.New("another backup has the volume")

// hold locks the volume, or returns what Ahead locked. The wait counts for the time of the snapshot.
func (s *Snapshotter) hold(ctx context.Context, of *subject) (*held, error) {
	s.mu.Lock()
	h := s.ahead[of.lockName()]
	s.mu.Unlock()
	if h != nil {
		return h, h.err
	}
	h = &held{began: s.Clock.Now(), unlock: func() {}}
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

// Ahead makes the snapshots of several claims without waiting for any, so that they are cut side by
// side. A volume stays locked until its snapshot is cut, whatever the turn of its claim: volumes
// are locked in the order of their names, so that two backups never wait for each other.
func (s *Snapshotter) Ahead(ctx context.Context, about []action.Keyed) {
	var all []*subject
	for _, a := range about {
		live := &corev1.PersistentVolumeClaim{}
		found, err := s.get(ctx, a.Namespace, a.Name, live)
		if err != nil || !found {
			continue
		}
		if of, err := s.find(ctx, claimOf(live), a.Key); err == nil && of != nil {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b *subject) int { return cmp.Compare(a.lockName(), b.lockName()) })
	for _, of := range all {
		h, err := s.hold(ctx, of)
		if errors.Is(err, ErrBusy) { // the claim does not wait again
			s.note(of, &held{err: err})
			continue
		}
		if err != nil {
			return
		}
		made, err := s.create(ctx, of)
		switch {
		case ctx.Err() != nil: // nothing is known of it
			return
		case err != nil:
			h.unlock()
			continue
		}
		s.watch(ctx, of, h, made)
	}
}

// note keeps what came of a volume ahead of the turn of its claim.
func (s *Snapshotter) note(of *subject, h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == nil {
		s.ahead = map[string]*held{}
	}
	s.ahead[of.lockName()] = h
}

// watch unlocks the volume once its snapshot is cut or cannot be, if the turn of its claim does not
// come before.
func (s *Snapshotter) watch(ctx context.Context, of *subject, h *held, made *snapshotv1.VolumeSnapshot) {
	watching, stop := context.WithCancel(ctx)
	unlock := h.unlock
	s.note(of, &held{began: h.began, unlock: func() { stop(); unlock() }})
	s.watching.Go(func() {
		defer stop()
		_, _, err := s.await(watching, made, h.began)
		if watching.Err() != nil && ctx.Err() == nil { // unlocked
			return
		}
		s.release(ctx, h, made, err)
	})
}

// lastLook bounds the look at a snapshot after the end of a context.
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
