package control

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// The kinds of requests.
const (
	kindBackup  = "PodVolumeBackup"
	kindRestore = "PodVolumeRestore"
)

// view is a PodVolumeBackup or PodVolumeRestore, seen as a request to move data. Its pointers are into the
// object.
type view struct {
	client.Object
	kind, mover string
	pod         corev1.ObjectReference
	volume      string
	location    string
	// namespace is that of the repository: the one that the volume was backed up in.
	namespace string
	uploader  velerov1.UploaderType
	cancel    bool

	phase                        *velerov1.PodVolumePhase
	message                      *string
	accepted, started, completed **metav1.Time
	progress                     *velerov1.DataMoveOperationProgress
}

func viewOf(o client.Object) view {
	if r, ok := o.(*velerov1.PodVolumeRestore); ok {
		return view{
			Object: r, kind: kindRestore, mover: moverpod.ValueRestore, pod: r.Spec.Pod, volume: r.Spec.Volume,
			location: r.Spec.BackupStorageLocation, namespace: r.Spec.SourceNamespace, uploader: r.Spec.UploaderType, cancel: r.Spec.Cancel,
			phase: &r.Status.Phase, message: &r.Status.Message, progress: &r.Status.Progress,
			accepted: &r.Status.AcceptedTimestamp, started: &r.Status.StartTimestamp, completed: &r.Status.CompletionTimestamp,
		}
	}
	b, ok := o.(*velerov1.PodVolumeBackup)
	if !ok {
		b = &velerov1.PodVolumeBackup{}
	}
	return view{
		Object: b, kind: kindBackup, mover: moverpod.ValueBackup, pod: b.Spec.Pod, volume: b.Spec.Volume,
		location: b.Spec.BackupStorageLocation, namespace: b.Spec.Pod.Namespace, uploader: b.Spec.UploaderType, cancel: b.Spec.Cancel,
		phase: &b.Status.Phase, message: &b.Status.Message, progress: &b.Status.Progress,
		accepted: &b.Status.AcceptedTimestamp, started: &b.Status.StartTimestamp, completed: &b.Status.CompletionTimestamp,
	}
}

// requestKey names a request among those of both kinds.
func (v view) requestKey() string { return v.kind + "/" + v.GetName() }

// moverNode is where its mover runs; empty while no restore has been accepted.
func (v view) moverNode() string {
	switch r := v.Object.(type) {
	case *velerov1.PodVolumeBackup:
		return r.Spec.Node
	case *velerov1.PodVolumeRestore:
		return r.Status.Node
	}
	return ""
}

// uploaderSettings are those of Velero.
func (v view) uploaderSettings() map[string]string {
	switch r := v.Object.(type) {
	case *velerov1.PodVolumeBackup:
		return r.Spec.UploaderSettings
	case *velerov1.PodVolumeRestore:
		return r.Spec.UploaderSettings
	}
	return nil
}

func (v view) isNew() bool { return *v.phase == "" || *v.phase == velerov1.PodVolumePhaseNew }

// isPreparing reports whether its mover has yet to run.
func (v view) isPreparing() bool {
	return *v.phase == velerov1.PodVolumePhaseAccepted || *v.phase == velerov1.PodVolumePhasePrepared
}

func (v view) isFinal() bool {
	return slices.Contains([]velerov1.PodVolumePhase{velerov1.PodVolumePhaseCompleted, velerov1.PodVolumePhaseFailed, velerov1.PodVolumePhaseCanceled}, *v.phase)
}

// ownerReference refers to the request from its mover Pod. It does not block the deletion of the request,
// which some clusters allow only to those who may set its finalizers.
func (v view) ownerReference() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: velerov1.GroupVersion.String(), Kind: v.kind, Name: v.GetName(), UID: v.GetUID(), Controller: ptr.To(true)}
}

// logArgs are the attributes of what is logged about it.
func (v view) logArgs(args ...any) []any {
	return append([]any{"kind", v.kind, "name", v.GetName(), "pod", v.pod.Namespace + "/" + v.pod.Name, "volume", v.volume}, args...)
}
