package volumes

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var (
	claimsGVR  = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	volumesGVR = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	classesGVR = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	contents   = snapshotv1.SchemeGroupVersion.WithResource(csisnapshot.Contents.Resource)
)

// Pauses between two reads of the claims.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// Awaiter waits for the claims that were created to be filled from CSI snapshots.
type Awaiter struct {
	Recorder *outcome.Recorder
	Existing *object.LiveReader
	Clock    clock.WithTicker
	// Timeout is how long the claims may take, all together.
	Timeout time.Duration
	Stop    object.StopSignal
}

// settledClaim is the result of waiting for a claim.
type settledClaim struct{ volume, message, problem string }

// Await returns once each claim is bound to its volume, which gets reclaim policy and labels that it
// had in the backup (Velero 1.18), or is not waited for: it was removed, or its class provisions
// with its first consumer and its snapshot is ready. A claim that takes longer than Timeout is an
// error of the restore. An error returned is the end of ctx, or dispatch.ErrStopped.
func (a *Awaiter) Await(ctx context.Context) error {
	began := a.Clock.Now()
	deadline := began.Add(a.Timeout)
	var waits atomic.Pointer[[]outcome.Wait]
	waits.Store(&[]outcome.Wait{})
	defer a.Recorder.ShowWaits(func() []outcome.Wait { return *waits.Load() })()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		late := !a.Clock.Now().Before(deadline)
		var open []outcome.Wait
		for _, f := range a.Recorder.Filled() {
			end, why, err := a.readClaim(ctx, &f)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case a.Stop.Requested():
				return dispatch.ErrStopped
			case end != nil:
				a.Recorder.Settle(f, end.volume, end.message, end.problem)
				continue
			case err != nil:
				why = err.Error()
			}
			if late {
				a.Recorder.Settle(f, "", "", fmt.Sprintf("claim %s/%s is not bound to a volume of CSI snapshot %s after %s: %s",
					f.Volume.ClaimNamespace, f.Volume.Claim, f.Volume.CSI.Handle, a.Timeout, why))
				continue
			}
			open = append(open, outcome.Wait{Node: f.Node, Since: began, Reason: "is not bound to a volume of its CSI snapshot: " + why})
		}
		if len(open) == 0 {
			return nil
		}
		waits.Store(&open)
		if err := a.pauseFor(ctx, pause); err != nil {
			return err
		}
	}
}

func (a *Awaiter) pauseFor(ctx context.Context, d time.Duration) error {
	timer := a.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-a.Stop:
		return dispatch.ErrStopped
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readObject reads an object; found is false where there is none.
func (a *Awaiter) readObject(ctx context.Context, t apply.Target, into any) (found bool, err error) {
	raw, err := a.Existing.Client.Get(ctx, t)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", t.GVR.Resource, t.Name, err)
	}
	return true, jsonlimit.Unmarshal(raw, into, jsonlimit.Object)
}

// readClaim reads a claim once. Without an end, why is what it waits for.
func (a *Awaiter) readClaim(ctx context.Context, f *outcome.Filled) (end *settledClaim, why string, err error) {
	var claim corev1.PersistentVolumeClaim
	found, err := a.readObject(ctx, apply.Target{GVR: claimsGVR, Namespace: f.Volume.ClaimNamespace, Name: f.Volume.Claim}, &claim)
	switch {
	case err != nil:
		return nil, "", err
	case !found || claim.DeletionTimestamp != nil:
		return &settledClaim{message: "the claim was removed before it was bound"}, "", nil
	case !isFilledFrom(&claim, f.Volume.CSI.Object):
		return &settledClaim{problem: fmt.Sprintf("claim %s/%s was replaced: the one in the cluster is not filled from CSI snapshot %s",
			claim.Namespace, claim.Name, f.Volume.CSI.Handle)}, "", nil
	case claim.Status.Phase == corev1.ClaimBound:
		return a.settleBound(ctx, f, claim.Spec.VolumeName)
	case claim.Status.Phase == corev1.ClaimLost:
		return &settledClaim{problem: fmt.Sprintf("claim %s/%s has lost its volume %s", claim.Namespace, claim.Name, claim.Spec.VolumeName)}, "", nil
	}
	return a.pendingReason(ctx, f, &claim)
}

// isFilledFrom reports that a claim is filled from the VolumeSnapshot of that name.
func isFilledFrom(claim *corev1.PersistentVolumeClaim, snapshot string) bool {
	if s := claim.Spec.DataSource; s != nil {
		return ptr.Deref(s.APIGroup, "") == snapshotv1.GroupName && s.Kind == "VolumeSnapshot" && s.Name == snapshot
	}
	s := claim.Spec.DataSourceRef
	return s != nil && ptr.Deref(s.APIGroup, "") == snapshotv1.GroupName && s.Kind == "VolumeSnapshot" && s.Name == snapshot &&
		ptr.Deref(s.Namespace, claim.Namespace) == claim.Namespace
}

// settleBound makes the volume of a claim what it was in the backup.
func (a *Awaiter) settleBound(ctx context.Context, f *outcome.Filled, name string) (*settledClaim, string, error) {
	found, err := a.settleVolume(ctx, name, f.Volume.CSI.ReclaimPolicy, f.Volume.CSI.Labels)
	switch {
	case err != nil:
		return nil, "", err
	case !found:
		return nil, "PersistentVolume " + name + " is not there", nil
	}
	return &settledClaim{volume: name, message: fmt.Sprintf("bound to volume %s, made of CSI snapshot %s", name, f.Volume.CSI.Handle)}, "", nil
}

// SettleMoved makes the volumes of claims that were filled from moved snapshots what they were in the backup
// (Velero 1.18). A claim that is not bound has an error of its operation. An error returned is the end of ctx.
func (a *Awaiter) SettleMoved(ctx context.Context) error {
	for _, f := range a.Recorder.Downloads() {
		var claim corev1.PersistentVolumeClaim
		_, err := a.readObject(ctx, apply.Target{GVR: claimsGVR, Namespace: f.Volume.ClaimNamespace, Name: f.Volume.Claim}, &claim)
		found, v := false, f.Volume
		if err == nil && claim.Status.Phase == corev1.ClaimBound {
			v.Name = claim.Spec.VolumeName
			found, err = a.settleVolume(ctx, v.Name, v.Download.ReclaimPolicy, v.Download.Labels)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			a.Recorder.Warn(f.Node, fmt.Sprintf("its volume may lack the reclaim policy and the labels of the backup: %v", err))
		case found:
			a.Recorder.Provision(f.Node, v)
		}
	}
	return nil
}

// settleVolume gives a volume reclaim policy and labels; found is false where there is none.
func (a *Awaiter) settleVolume(ctx context.Context, name, policy string, want map[string]string) (found bool, err error) {
	target := apply.Target{GVR: volumesGVR, Name: name}
	var pv corev1.PersistentVolume
	if found, err = a.readObject(ctx, target, &pv); err != nil || !found {
		return false, err
	}
	patch, meta, labels := map[string]any{}, map[string]any{}, map[string]any{}
	if policy != "" && policy != string(pv.Spec.PersistentVolumeReclaimPolicy) {
		patch["spec"] = map[string]any{"persistentVolumeReclaimPolicy": policy}
	}
	for key, value := range want {
		if now, ok := pv.Labels[key]; !ok || now != value {
			labels[key] = value
		}
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(patch)+len(meta) == 0 {
		return true, nil
	}
	meta["uid"] = pv.UID // refused for another volume of that name
	patch["metadata"] = meta
	if _, err := a.Existing.Client.Patch(ctx, target, patch); err != nil {
		return true, fmt.Errorf("set reclaim policy and labels of volume %s: %w", name, err)
	}
	return true, nil
}

// pendingReason finds out what a claim waits for.
func (a *Awaiter) pendingReason(ctx context.Context, f *outcome.Filled, claim *corev1.PersistentVolumeClaim) (*settledClaim, string, error) {
	var content snapshotv1.VolumeSnapshotContent
	found, err := a.readObject(ctx, apply.Target{GVR: contents, Name: f.Volume.CSI.Object}, &content)
	if err != nil {
		return nil, "", err
	}
	if why := unreadyReason(&content); !found || why != "" {
		return nil, cmp.Or(why, "its VolumeSnapshotContent was removed"), nil
	}
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	if name == "" {
		return nil, "it has no StorageClass, and the cluster no default one", nil
	}
	var class storagev1.StorageClass
	switch found, err := a.readObject(ctx, apply.Target{GVR: classesGVR, Name: name}, &class); {
	case err != nil:
		return nil, "", err
	case !found:
		return &settledClaim{problem: fmt.Sprintf("claim %s/%s is not bound to a volume of CSI snapshot %s: StorageClass %q is not in the cluster",
			claim.Namespace, claim.Name, f.Volume.CSI.Handle, name)}, "", nil
	case ptr.Deref(class.VolumeBindingMode, storagev1.VolumeBindingImmediate) == storagev1.VolumeBindingWaitForFirstConsumer:
		return &settledClaim{message: "its snapshot is ready: a volume is made of it with the first consumer of the claim"}, "", nil
	}
	return nil, fmt.Sprintf("provisioner %q made no volume, see the events of the claim", class.Provisioner), nil
}

// unreadyReason is why no volume can be made of a content yet.
func unreadyReason(content *snapshotv1.VolumeSnapshotContent) string {
	s := content.Status
	switch {
	case s != nil && ptr.Deref(s.ReadyToUse, false):
		return ""
	case s != nil && s.Error != nil:
		return fmt.Sprintf("driver %s: %s", content.Spec.Driver, ptr.Deref(s.Error.Message, "an error without a message"))
	}
	return fmt.Sprintf("driver %s has not made the snapshot ready", content.Spec.Driver)
}
