package csisnapshot

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Discard removes a VolumeSnapshot with its content and what the driver stored.
func (a API) Discard(ctx context.Context, namespace, name string) error {
	p, err := a.readPair(ctx, namespace, name)
	if err != nil {
		return err
	}
	return a.deletePair(ctx, p, snapshotv1.VolumeSnapshotContentDelete)
}

// annotationDeleted on a content has its sidecar remove it, which ignores the deletion otherwise
// (external-snapshotter 8.7). The snapshot controller writes it when it observes the deletion of
// the VolumeSnapshot, and not when that no longer exists.
const annotationDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"

// Release removes the objects of a snapshot, either of which may be nil, and leaves what the driver
// stored.
func (a API) Release(ctx context.Context, vs *snapshotv1.VolumeSnapshot, vsc *snapshotv1.VolumeSnapshotContent) error {
	return a.deletePair(ctx, snapshotPair{snapshot: vs, content: vsc}, snapshotv1.VolumeSnapshotContentRetain)
}

// deletePair removes a snapshot and its content. What becomes of the data in the driver is decided by the
// policy, which is set first: nothing is removed where that fails. The content goes last: the
// snapshot controller makes another one, with the policy of the class, for a VolumeSnapshot whose
// content is gone and which is not being deleted itself (external-snapshotter 8.7). With that one the
// driver would remove what a backup names.
func (a API) deletePair(ctx context.Context, p snapshotPair, policy snapshotv1.DeletionPolicy) error {
	if err := a.findUnbound(ctx, &p); err != nil {
		return err
	}
	if p.content != nil {
		if err := a.markDeleted(ctx, p, policy); err != nil {
			return err
		}
	}
	if p.snapshot != nil {
		if err := a.deleteObject(ctx, p.snapshot); err != nil {
			return err
		}
	}
	if p.content == nil {
		return nil
	}
	return a.deleteObject(ctx, p.content)
}

// findUnbound adds the content of a snapshot whose status does not name it yet. It has the name that
// the snapshot controller gives to contents of claims (external-snapshotter 8.7).
func (a API) findUnbound(ctx context.Context, p *snapshotPair) error {
	if p.content != nil || p.snapshot == nil || p.snapshot.Spec.Source.PersistentVolumeClaimName == nil {
		return nil
	}
	vsc := &snapshotv1.VolumeSnapshotContent{}
	found, err := a.getObject(ctx, "", "snapcontent-"+string(p.snapshot.UID), vsc)
	if found && vsc.Spec.VolumeSnapshotRef.UID == p.snapshot.UID {
		p.content = vsc
	}
	return err
}

// markDeleted has the sidecar of the content of a pair remove it once it is deleted, and the data by
// the policy. A content without labels of a backup gets those of its snapshot with the same write: a
// controller may overwrite the mark, and once the snapshot is gone only labels lead to the content.
func (a API) markDeleted(ctx context.Context, p snapshotPair, policy snapshotv1.DeletionPolicy) error {
	vsc, changed := p.content, p.content.DeepCopy()
	changed.Spec.DeletionPolicy = policy
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, annotationDeleted, "yes")
	if p.snapshot != nil {
		inheritLabels(changed, p.snapshot.Labels)
	}
	err := a.retryCall(ctx, fmt.Sprintf("set the deletion policy of VolumeSnapshotContent %s", vsc.Name), func() error {
		return a.Client.Patch(ctx, changed.DeepCopy(), client.MergeFrom(vsc))
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// inheritLabels labels a content as the backup's that its snapshot is labelled as. What a restore made, by
// the labels of either, belongs to no backup.
func inheritLabels(vsc *snapshotv1.VolumeSnapshotContent, labels map[string]string) {
	if vsc.Labels[velerov1.LabelBackupName] != "" || vsc.Labels[velerov1.LabelRestoreName] != "" || labels[velerov1.LabelRestoreName] != "" {
		return
	}
	for _, key := range []string{velerov1.LabelBackupName, velerov1.LabelBackupUID} {
		if value := labels[key]; value != "" {
			metav1.SetMetaDataLabel(&vsc.ObjectMeta, key, value)
		}
	}
}

// isDeletionStuck reports that a content is being deleted without the annotation, so that its sidecar does not
// remove it. The controllers write all annotations as they read them before (external-snapshotter 8.7).
func isDeletionStuck(vsc *snapshotv1.VolumeSnapshotContent) bool {
	return vsc.DeletionTimestamp != nil && vsc.Annotations[annotationDeleted] == ""
}

// deleteObject deletes the object with this UID, if it exists.
func (a API) deleteObject(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	err := a.retryCall(ctx, fmt.Sprintf("delete %T %s", o, client.ObjectKeyFromObject(o)), func() error {
		return a.Client.Delete(ctx, o, client.Preconditions{UID: &uid})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Owner is a backup, whose snapshots are found by their labels.
type Owner struct {
	Name string
	// UID is the one that snapshots are labelled with; those that Velero made have none.
	UID types.UID
}

// isMadeByBackup reports whether an object that has the label of the backup's name was made for this backup by
// an action of this package, and is not of a restore of it. What Velero made has no label of a UID:
// it may be of another backup of that name, one that a Velero server is working on.
func (o Owner) isMadeByBackup(object client.Object) bool {
	labels := object.GetLabels()
	return labels[velerov1.LabelRestoreName] == "" && o.UID != "" && labels[velerov1.LabelBackupUID] == string(o.UID)
}

// belongsToBackup reports the same of an object of a backup that is deleted, which may have been made by Velero.
func (o Owner) belongsToBackup(object client.Object) bool {
	labels := object.GetLabels()
	return o.isMadeByBackup(object) || labels[velerov1.LabelRestoreName] == "" && labels[velerov1.LabelBackupUID] == ""
}

// hasBackupLabels reports whether an object has the label of the backup's name, and belongs to it by the others.
func (o Owner) hasBackupLabels(object client.Object) bool {
	return object.GetLabels()[velerov1.LabelBackupName] == velerov1.LabelValue(o.Name) && o.belongsToBackup(object)
}

// DiscardAll removes every snapshot of a backup that is deleted, whichever server made it, with what
// the drivers stored. Where the snapshot API is not served there is none.
func (a API) DiscardAll(ctx context.Context, of Owner) error {
	return a.removeSnapshots(ctx, of, of.belongsToBackup, func(types.NamespacedName) bool { return false })
}

// End removes the snapshot objects of a backup that has ended, those labelled with its UID. What the
// driver stored stays for those that are in the backup (Velero 1.18); it goes with the others, which
// nothing names.
func (a API) End(ctx context.Context, of Owner, stored func(snapshot types.NamespacedName) bool) error {
	return a.removeSnapshots(ctx, of, of.isMadeByBackup, stored)
}

// removeSnapshots removes the snapshot objects that have the label of the backup's name and belong to it.
func (a API) removeSnapshots(ctx context.Context, of Owner, belongs func(client.Object) bool, stored func(snapshot types.NamespacedName) bool) error {
	snapshots, contents, err := a.listOwned(ctx, of.Name, belongs)
	if errors.Is(err, ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	policy := func(namespace, name string) snapshotv1.DeletionPolicy {
		if stored(types.NamespacedName{Namespace: namespace, Name: name}) {
			return snapshotv1.VolumeSnapshotContentRetain
		}
		return snapshotv1.VolumeSnapshotContentDelete
	}
	var failed []error
	for i := range snapshots {
		vs := &snapshots[i]
		p, err := a.readPair(ctx, vs.Namespace, vs.Name)
		if err == nil && p.snapshot != nil && p.snapshot.UID == vs.UID {
			err = a.deletePair(ctx, p, policy(vs.Namespace, vs.Name))
		}
		failed = append(failed, err)
	}
	for i := range contents { // of snapshots that are gone
		vsc := &contents[i]
		if vsc.DeletionTimestamp == nil || isDeletionStuck(vsc) {
			failed = append(failed, a.deletePair(ctx, snapshotPair{content: vsc}, policy(vsc.Spec.VolumeSnapshotRef.Namespace, vsc.Spec.VolumeSnapshotRef.Name)))
		}
	}
	return errors.Join(failed...)
}

// listOwned lists the snapshots and the contents that have the label of the backup's name and belong to it.
func (a API) listOwned(ctx context.Context, backup string, belongs func(client.Object) bool) ([]snapshotv1.VolumeSnapshot, []snapshotv1.VolumeSnapshotContent, error) {
	labelled := client.MatchingLabels{velerov1.LabelBackupName: velerov1.LabelValue(backup)}
	var snapshots snapshotv1.VolumeSnapshotList
	if err := a.retryCall(ctx, "list VolumeSnapshots", func() error { return a.Reader.List(ctx, &snapshots, labelled) }); err != nil {
		return nil, nil, err
	}
	var contents snapshotv1.VolumeSnapshotContentList
	if err := a.retryCall(ctx, "list VolumeSnapshotContents", func() error { return a.Reader.List(ctx, &contents, labelled) }); err != nil {
		return nil, nil, err
	}
	return filterOwned(snapshots.Items, belongs, func(o *snapshotv1.VolumeSnapshot) client.Object { return o }),
		filterOwned(contents.Items, belongs, func(o *snapshotv1.VolumeSnapshotContent) client.Object { return o }), nil
}

func filterOwned[T any](all []T, belongs func(client.Object) bool, as func(*T) client.Object) []T {
	kept := all[:0]
	for i := range all {
		if belongs(as(&all[i])) {
			kept = append(kept, all[i])
		}
	}
	return kept
}
