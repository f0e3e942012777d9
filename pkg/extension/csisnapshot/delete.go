package csisnapshot

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// finalizerContent keeps a VolumeSnapshotContent until its driver has removed the snapshot.
const finalizerContent = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

// Served reports whether the cluster serves the snapshot API.
func (a API) Served(ctx context.Context) (bool, error) {
	var none snapshotv1.VolumeSnapshotContentList
	err := a.retryCall(ctx, "list VolumeSnapshotContents", func() error { return a.Reader.List(ctx, &none, client.Limit(1)) })
	if errors.Is(err, ErrNotServed) {
		return false, nil
	}
	return err == nil, err
}

// DeleteActions returns the actions for the items of a backup that is deleted.
func (a API) DeleteActions() []action.DeleteItem {
	return []action.DeleteItem{&deleteAction{named{NameDelete, Contents}, a}}
}

// deleteAction has the driver remove the snapshot of a stored content. It only begins that; Gone
// waits for its end.
type deleteAction struct {
	named
	API
}

// Execute implements action.DeleteItem. Contents that are not labelled as the backup's are another
// one's (Velero 1.18).
func (d *deleteAction) Execute(ctx context.Context, o *action.Object, b *action.Backup) (err error) {
	defer d.guardPanic(&err)
	raw, err := o.JSON()
	if err != nil {
		return err
	}
	stored := &snapshotv1.VolumeSnapshotContent{}
	if err := json.Unmarshal(raw, stored); err != nil {
		return fmt.Errorf("read the VolumeSnapshotContent: %w", err)
	}
	p := snapshotPair{content: stored}
	if stored.Labels[velerov1.LabelBackupName] != velerov1.LabelValue(b.Backup().Name) || p.snapshotHandle() == "" {
		return nil
	}
	live := &snapshotv1.VolumeSnapshotContent{}
	found, err := d.getObject(ctx, "", stored.Name, live)
	if err != nil {
		return err
	}
	was := snapshotPair{content: live}
	if found && was.snapshotHandle() == p.snapshotHandle() {
		return d.removeLiveContent(ctx, live)
	}
	return d.deleteDuplicate(ctx, stored, p.snapshotHandle())
}

// removeLiveContent removes a content that is in the cluster with its snapshot.
func (d *deleteAction) removeLiveContent(ctx context.Context, live *snapshotv1.VolumeSnapshotContent) error {
	ref, p := live.Spec.VolumeSnapshotRef, snapshotPair{content: live}
	vs := &snapshotv1.VolumeSnapshot{}
	found, err := d.getObject(ctx, ref.Namespace, ref.Name, vs)
	if err != nil {
		return err
	}
	if found && vs.UID == ref.UID {
		p.snapshot = vs
	}
	return d.deletePair(ctx, p, snapshotv1.VolumeSnapshotContentDelete)
}

// deleteDuplicate creates a second content with the same snapshot handle, and deletes it. Its
// finalizer keeps it until the driver has removed the snapshot. Its name follows from the handle,
// so that another attempt finds it.
//
// The sidecar has the driver remove only snapshots whose handle is in the status of the content
// (external-snapshotter 8.7). It writes that itself if it reads the content before the deletion and
// the driver has the snapshot, neither of which is certain.
func (d *deleteAction) deleteDuplicate(ctx context.Context, stored *snapshotv1.VolumeSnapshotContent, handle string) error {
	duplicate := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: "vsc-" + hashToUUID(stored.Spec.Driver+"/"+handle), Labels: stored.Labels, Annotations: stored.Annotations, Finalizers: []string{finalizerContent},
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot",
				Namespace: "ns-" + string(stored.UID), Name: "name-" + string(stored.UID),
			},
			DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, Driver: stored.Spec.Driver,
			Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle}, SourceVolumeMode: stored.Spec.SourceVolumeMode,
		},
	}
	err := d.retryCall(ctx, "create VolumeSnapshotContent "+duplicate.Name, func() error { return d.Client.Create(ctx, duplicate) })
	if apierrors.IsAlreadyExists(err) {
		found, err := d.getObject(ctx, "", duplicate.Name, duplicate)
		if err != nil || !found {
			return err
		}
	} else if err != nil {
		return err
	}
	known := duplicate.DeepCopy()
	if known.Status == nil {
		known.Status = &snapshotv1.VolumeSnapshotContentStatus{}
	}
	known.Status.SnapshotHandle = &handle
	err = d.retryCall(ctx, "set the handle of VolumeSnapshotContent "+duplicate.Name, func() error {
		return d.Client.Status().Patch(ctx, known.DeepCopy(), client.MergeFrom(duplicate))
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.deleteObject(ctx, duplicate)
}

// hashToUUID returns a text in the form of a UUID.
func hashToUUID(text string) string {
	digest := hashText(text)
	h := hex.EncodeToString(digest[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

const (
	// goneLimit bounds the wait for the drivers.
	goneLimit = 2 * time.Minute
	// shownContents is how many contents an error names.
	shownContents = 3
)

// ErrRemains means that a driver has not removed a snapshot.
var ErrRemains = errors.New("not removed by its driver yet")

// Gone waits until no content of the backup is left. An error wraps ErrRemains where drivers take
// longer than two minutes, and has the messages that they report.
func (a API) Gone(ctx context.Context, of Owner) error {
	loop := retry.Loop{
		Clock: a.Clock, Log: slog.New(slog.DiscardHandler), // an existing content is no failure
		Transient: func(err error) bool { return errors.Is(err, ErrRemains) }, Budget: goneLimit, First: firstPause, Longest: longPause,
	}
	err := loop.Do(ctx, "wait for the drivers", func() error {
		_, left, err := a.listOwned(ctx, of.Name, of.belongsToBackup)
		switch {
		case errors.Is(err, ErrNotServed), err == nil && len(left) == 0:
			return nil
		case err != nil:
			return err
		}
		for i := range left {
			if vsc := &left[i]; isDeletionStuck(vsc) {
				if err := a.markDeleted(ctx, snapshotPair{content: vsc}, vsc.Spec.DeletionPolicy); err != nil {
					return err
				}
			}
		}
		return remainingContentsError(left)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func remainingContentsError(left []snapshotv1.VolumeSnapshotContent) error {
	var texts []string
	for i := range left[:min(len(left), shownContents)] {
		p := snapshotPair{content: &left[i]}
		texts = append(texts, fmt.Sprintf("VolumeSnapshotContent %s of driver %s, snapshot %s: %s", left[i].Name, left[i].Spec.Driver,
			cmp.Or(p.snapshotHandle(), ptr.Deref(left[i].Spec.Source.SnapshotHandle, "unknown")), cmp.Or(p.failureMessage(), "no error is reported")))
	}
	return fmt.Errorf("%w: %d: %s", ErrRemains, len(left), strings.Join(texts, "; "))
}
