package restored

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// Why a snapshot of a backup cannot be restored.
var (
	ErrUnbound = errors.New("the VolumeSnapshot in the backup is bound to no content")
	ErrUncut   = errors.New("the VolumeSnapshotContent in the backup has no snapshotHandle: its snapshot was not taken")
)

// Stored is a snapshot as a backup has it. Immutable.
type Stored struct {
	snapshot snapshotv1.VolumeSnapshot
	content  snapshotv1.VolumeSnapshotContent
}

// ContentOf returns the name of the content that a stored VolumeSnapshot is bound to.
func ContentOf(snapshot []byte) (string, error) {
	var vs snapshotv1.VolumeSnapshot
	if err := jsonlimit.Unmarshal(snapshot, &vs, jsonlimit.Object); err != nil {
		return "", fmt.Errorf("read the VolumeSnapshot: %w", err)
	}
	if vs.Status == nil || ptr.Deref(vs.Status.BoundVolumeSnapshotContentName, "") == "" {
		return "", ErrUnbound
	}
	return *vs.Status.BoundVolumeSnapshotContentName, nil
}

// Read reads a stored VolumeSnapshot and its content.
func Read(snapshot, content []byte) (*Stored, error) {
	s := &Stored{}
	if err := jsonlimit.Unmarshal(snapshot, &s.snapshot, jsonlimit.Object); err != nil {
		return nil, fmt.Errorf("read the VolumeSnapshot: %w", err)
	}
	if err := jsonlimit.Unmarshal(content, &s.content, jsonlimit.Object); err != nil {
		return nil, fmt.Errorf("read the VolumeSnapshotContent: %w", err)
	}
	switch {
	case s.content.Status == nil || ptr.Deref(s.content.Status.SnapshotHandle, "") == "":
		return nil, ErrUncut
	case s.content.Spec.Driver == "":
		return nil, errors.New("spec.driver of the VolumeSnapshotContent: missing")
	}
	return s, nil
}

// Handle is the driver's name of the snapshot.
func (s *Stored) Handle() string { return *s.content.Status.SnapshotHandle }

// Driver is the name of the driver that has the snapshot.
func (s *Stored) Driver() string { return s.content.Spec.Driver }

// Class is the VolumeSnapshotClass that the snapshot was taken with; it may be empty.
func (s *Stored) Class() string { return ptr.Deref(s.content.Spec.VolumeSnapshotClassName, "") }

// Size is what a volume of the snapshot needs, in bytes; 0 is not known.
func (s *Stored) Size() int64 { return ptr.Deref(s.content.Status.RestoreSize, 0) }

// Restore is the restore that a pair is made for.
type Restore struct {
	// Server is the namespace of the server.
	Server string
	UID    types.UID
	// Labels are on all objects of the restore.
	Labels map[string]string
}

// stale annotations are about work that was under way in the cluster of the backup.
var stale = []string{
	"snapshot.storage.kubernetes.io/volumesnapshot-being-created", "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted",
	"kubectl.kubernetes.io/last-applied-configuration",
	csisnapshot.AnnotationKey, csisnapshot.AnnotationVolume,
}

// Content is the VolumeSnapshotContent of the snapshot in another cluster, for the VolumeSnapshot
// that has its name there. Its deletion keeps the driver's snapshot. class is empty for none.
func (s *Stored) Content(r Restore, in types.NamespacedName, class string) *snapshotv1.VolumeSnapshotContent {
	vsc := &snapshotv1.VolumeSnapshotContent{
		TypeMeta:   metav1.TypeMeta{APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshotContent"},
		ObjectMeta: r.restoredMeta(&s.content.ObjectMeta, types.NamespacedName{Name: in.Name}),
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot", Namespace: in.Namespace, Name: in.Name,
			},
			DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Driver: s.Driver(),
			Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: ptr.To(s.Handle())}, SourceVolumeMode: s.content.Spec.SourceVolumeMode,
		},
	}
	if class != "" {
		vsc.Spec.VolumeSnapshotClassName = &class
	}
	return vsc
}

// Snapshot is the VolumeSnapshot that is bound to Content.
func (s *Stored) Snapshot(r Restore, in types.NamespacedName) *snapshotv1.VolumeSnapshot {
	vs := &snapshotv1.VolumeSnapshot{
		TypeMeta:   metav1.TypeMeta{APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot"},
		ObjectMeta: r.restoredMeta(&s.snapshot.ObjectMeta, in),
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &in.Name}},
	}
	vs.Annotations[velerov1.AnnotationCSIDeletionPolicy] = string(snapshotv1.VolumeSnapshotContentRetain)
	return vs
}

// restoredMeta keeps labels and annotations. Finalizers are the snapshot controller's, which adds them.
func (r Restore) restoredMeta(stored *metav1.ObjectMeta, in types.NamespacedName) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name, Labels: maps.Clone(stored.Labels), Annotations: maps.Clone(stored.Annotations)}
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	delete(m.Labels, velerov1.LabelBackupUID)
	maps.Copy(m.Labels, r.Labels)
	m.Labels[velerov1.LabelRestoreUID] = string(r.UID)
	for _, key := range stale {
		delete(m.Annotations, key)
	}
	m.Annotations[AnnotationServer] = r.Server
	return m
}

// Encode returns an object as it is created.
func Encode(o client.Object) (map[string]any, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	var body map[string]any
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	delete(body, "status")
	if meta, ok := body["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return body, nil
}
