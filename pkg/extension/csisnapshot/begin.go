package csisnapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

func hashText(text string) [sha256.Size]byte { return sha256.Sum256([]byte(text)) }

// maxNameAttempts bounds the names that are tried for a snapshot.
const maxNameAttempts = 10

// createSnapshot makes the VolumeSnapshot, or finds the one that a call with the same key made.
func (s *Snapshotter) createSnapshot(ctx context.Context, of *snapshotSubject) (*snapshotv1.VolumeSnapshot, error) {
	for turn := range maxNameAttempts {
		wanted, err := s.newVolumeSnapshot(of, nameSnapshot(of.claim.Metadata.Name, of.key, turn))
		if err != nil {
			return nil, err
		}
		made := wanted.DeepCopy()
		err = s.retryCall(ctx, "create VolumeSnapshot "+wanted.Namespace+"/"+wanted.Name, func() error { return s.Client.Create(ctx, made) })
		if err == nil {
			return made, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		there := &snapshotv1.VolumeSnapshot{}
		found, err := s.getObject(ctx, wanted.Namespace, wanted.Name, there)
		if err != nil {
			return nil, err
		}
		if found && there.Annotations[AnnotationKey] == of.key && there.DeletionTimestamp == nil {
			return there, nil
		}
	}
	return nil, errors.New("no name is free for a VolumeSnapshot")
}

// Pauses between two reads of a snapshot that is not cut.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 2 * time.Second
)

// awaitHandle waits until the driver has cut the snapshot, which is when its content has a handle.
func (s *Snapshotter) awaitHandle(ctx context.Context, made *snapshotv1.VolumeSnapshot, began time.Time) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent, error) {
	limit := snapshotTimeout(s.Backup)
	deadline := began.Add(limit)
	for pause := firstPause; ; pause = min(pause*2, longPause) {
		pair, err := s.readPair(ctx, made.Namespace, made.Name)
		switch {
		case err != nil:
			return nil, nil, err
		case pair.snapshot == nil || pair.snapshot.UID != made.UID:
			return nil, nil, fmt.Errorf("VolumeSnapshot %s/%s was removed before it was cut", made.Namespace, made.Name)
		case pair.content != nil && pair.snapshotHandle() != "":
			return pair.snapshot, pair.content, nil
		case !s.Clock.Now().Before(deadline):
			return nil, nil, fmt.Errorf("VolumeSnapshot %s/%s was not cut within %s (csiSnapshotTimeout): %s", made.Namespace, made.Name, limit,
				cmp.Or(pair.failureMessage(), "the driver reports no error"))
		}
		if err := retry.Pause(ctx, s.Clock, pause); err != nil {
			return nil, nil, err
		}
	}
}

// snapshotPair is a VolumeSnapshot and the content it is bound to; nil is what does not exist.
type snapshotPair struct {
	snapshot *snapshotv1.VolumeSnapshot
	content  *snapshotv1.VolumeSnapshotContent
}

// readPair reads a VolumeSnapshot and the content that is bound to it.
func (a API) readPair(ctx context.Context, namespace, name string) (p snapshotPair, err error) {
	vs := &snapshotv1.VolumeSnapshot{}
	found, err := a.getObject(ctx, namespace, name, vs)
	if err != nil || !found {
		return p, err
	}
	p.snapshot = vs
	bound := ""
	if vs.Status != nil {
		bound = ptr.Deref(vs.Status.BoundVolumeSnapshotContentName, "")
	}
	if bound == "" {
		return p, nil
	}
	vsc := &snapshotv1.VolumeSnapshotContent{}
	found, err = a.getObject(ctx, "", bound, vsc)
	if found {
		p.content = vsc
	}
	return p, err
}

// snapshotHandle is the driver's name of the snapshot; empty before it is cut.
func (p *snapshotPair) snapshotHandle() string {
	if p.content == nil || p.content.Status == nil {
		return ""
	}
	return ptr.Deref(p.content.Status.SnapshotHandle, "")
}

// isReady reports that volumes can be made of the snapshot, by the status of both objects: the snapshot
// controller may make another content for a VolumeSnapshot that is not ready, see end.
func (p *snapshotPair) isReady() bool {
	s := p.snapshot.Status
	return s != nil && ptr.Deref(s.ReadyToUse, false) && p.content.Status != nil && ptr.Deref(p.content.Status.ReadyToUse, false)
}

// failureMessage is the error that the driver or the snapshot controller reports.
func (p *snapshotPair) failureMessage() string {
	var e *snapshotv1.VolumeSnapshotError
	if p.content != nil && p.content.Status != nil {
		e = p.content.Status.Error
	}
	if e == nil && p.snapshot != nil && p.snapshot.Status != nil {
		e = p.snapshot.Status.Error
	}
	if e == nil {
		return ""
	}
	return ptr.Deref(e.Message, "an error without a message")
}
