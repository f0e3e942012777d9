package volumes

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// maxReads is how many volumes outside of the restore are read one by one before all are listed.
const maxReads = 10

// liveVolumes are the PersistentVolumes of the cluster by name. Safe for concurrent use.
type liveVolumes struct {
	mu    sync.Mutex
	reads int
	names map[string]bool // nil before they are listed
}

// hasVolume reports that a volume is in the cluster: by a read or, for many claims, by one list.
func (l *liveVolumes) hasVolume(ctx context.Context, existing *object.LiveReader, name string) (bool, error) {
	l.mu.Lock()
	if l.reads++; l.reads <= maxReads {
		l.mu.Unlock()
		live, err := existing.Get(ctx, apply.Target{GVR: volumesGVR, Name: name})
		return live != nil, err
	}
	defer l.mu.Unlock()
	if l.names == nil {
		names := map[string]bool{}
		if err := existing.Client.EachName(ctx, apply.Target{GVR: volumesGVR}, func(name string) { names[name] = true }); err != nil {
			return false, err
		}
		l.names = names
	}
	return l.names[name], nil
}

// volumeExists reports that the PersistentVolume is in the cluster and stays there. One that is
// going away, as after its claim's namespace was deleted, is a delay: its name is free afterwards,
// and its data is in the snapshot alone.
func (p *Provisioner) volumeExists(ctx context.Context, o *object.Object) (there bool, err error) {
	there, going, err := p.readVolume(ctx, o)
	if err != nil || going == "" {
		return there, err
	}
	return false, &object.DelayError{Kind: object.Terminating, Timeout: p.Timeouts.Terminating, Waits: "waits until the volume of that name, which goes away, is gone",
		Err: fmt.Errorf("PersistentVolume %q is there after %s still, and %s", o.Target.Name, p.Timeouts.Terminating, going)}
}

// readVolume reads the PersistentVolume once. going is why it will be deleted, "" when it stays or does
// not exist.
func (p *Provisioner) readVolume(ctx context.Context, o *object.Object) (there bool, going string, err error) {
	live, err := p.Existing.Get(ctx, o.Target)
	if live == nil || err != nil {
		return false, "", err
	}
	if p.History.Resumed && p.History.Intents[o.Node] == "" && p.Existing.Manager.IsCreatedByRestore(object.MapAt(live, "metadata")) {
		return true, "", nil // created by an earlier holder, and left as it is
	}
	going, err = p.goingAway(ctx, live)
	return true, going, err
}

// goingAway returns why a live PersistentVolume will go away. One that its claim has left, and that
// stays as it is, is an error: nothing can bind it, and nothing but its removal makes room for
// another.
func (p *Provisioner) goingAway(ctx context.Context, live map[string]any) (string, error) {
	meta, spec := object.MapAt(live, "metadata"), object.MapAt(live, "spec")
	if meta["deletionTimestamp"] != nil {
		return "is being deleted", nil
	}
	phase := object.TextAt(object.MapAt(live, "status"), "phase")
	switch corev1.PersistentVolumePhase(phase) {
	case corev1.VolumeReleased, corev1.VolumeFailed:
		policy := object.TextAt(spec, "persistentVolumeReclaimPolicy")
		if policy == string(corev1.PersistentVolumeReclaimDelete) {
			return "is " + phase + " with reclaim policy Delete", nil
		}
		return "", fmt.Errorf("PersistentVolume %q exists and is %s with reclaim policy %s, so that no claim can bind it: delete it, and restore again",
			object.TextAt(meta, "name"), phase, policy)
	case corev1.VolumeBound:
		return p.unclaimedReason(ctx, object.MapAt(spec, "claimRef"))
	}
	return "", nil
}

// unclaimedReason reports that the claim of a bound PersistentVolume is gone, which its controller
// notices only later, or going.
func (p *Provisioner) unclaimedReason(ctx context.Context, ref map[string]any) (string, error) {
	namespace, name := object.TextAt(ref, "namespace"), object.TextAt(ref, "name")
	if namespace == "" || name == "" {
		return "", nil
	}
	raw, err := p.Existing.Client.Get(ctx, apply.Target{GVR: claimsGVR, Namespace: namespace, Name: name})
	gone := fmt.Sprintf("is bound to claim %s/%s, which is gone", namespace, name)
	if apierrors.IsNotFound(err) {
		return gone, nil
	}
	if err != nil {
		return "", fmt.Errorf("look for claim %s/%s: %w", namespace, name, err)
	}
	claim, err := object.DecodeLive(raw)
	switch {
	case err != nil:
		return "", err
	case claim.Metadata.DeletionTimestamp != nil:
		return fmt.Sprintf("is bound to claim %s/%s, which is being deleted", namespace, name), nil
	case object.TextAt(ref, "uid") != "" && object.TextAt(ref, "uid") != string(claim.Metadata.UID):
		return gone, nil
	}
	return "", nil
}
