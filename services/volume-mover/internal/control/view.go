package control

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// The kinds of requests.
const (
	kindBackup   = "PodVolumeBackup"
	kindRestore  = "PodVolumeRestore"
	kindUpload   = "DataUpload"
	kindDownload = "DataDownload"
)

// requestKinds returns an object of each kind.
func requestKinds() []client.Object {
	return []client.Object{&velerov1.PodVolumeBackup{}, &velerov1.PodVolumeRestore{}, &v2alpha1.DataUpload{}, &v2alpha1.DataDownload{}}
}

// view is a request to move data, of any kind. Its pointers are into the object.
type view struct {
	client.Object
	kind, mover string
	// pod and volume name the volume of a Pod.
	pod    corev1.ObjectReference
	volume string
	// claim is the claim of which a snapshot is moved, or that is filled.
	claim client.ObjectKey
	// filled is the volume that has all data for the claim; empty while none has.
	filled   string
	location string
	// namespace is that of the repository: the one that the volume was backed up in.
	namespace string
	uploader  velerov1.UploaderType
	// settings are those of Velero's uploader.
	settings map[string]string
	cancel   bool
	// foreign requests are for another data mover.
	foreign bool

	phase                        *velerov1.PodVolumePhase
	message                      *string
	accepted, started, completed **metav1.Time
	progress                     *velerov1.DataMoveOperationProgress
}

func viewOf(o client.Object) view {
	switch r := o.(type) {
	case *velerov1.PodVolumeBackup:
		return view{
			Object: r, kind: kindBackup, mover: moverpod.ValueBackup, pod: r.Spec.Pod, volume: r.Spec.Volume, settings: r.Spec.UploaderSettings,
			location: r.Spec.BackupStorageLocation, namespace: r.Spec.Pod.Namespace, uploader: r.Spec.UploaderType, cancel: r.Spec.Cancel,
			phase: &r.Status.Phase, message: &r.Status.Message, progress: &r.Status.Progress,
			accepted: &r.Status.AcceptedTimestamp, started: &r.Status.StartTimestamp, completed: &r.Status.CompletionTimestamp,
		}
	case *velerov1.PodVolumeRestore:
		return view{
			Object: r, kind: kindRestore, mover: moverpod.ValueRestore, pod: r.Spec.Pod, volume: r.Spec.Volume, settings: r.Spec.UploaderSettings,
			location: r.Spec.BackupStorageLocation, namespace: r.Spec.SourceNamespace, uploader: r.Spec.UploaderType, cancel: r.Spec.Cancel,
			phase: &r.Status.Phase, message: &r.Status.Message, progress: &r.Status.Progress,
			accepted: &r.Status.AcceptedTimestamp, started: &r.Status.StartTimestamp, completed: &r.Status.CompletionTimestamp,
		}
	case *v2alpha1.DataDownload:
		return view{
			Object: r, kind: kindDownload, mover: moverpod.ValueDownload, claim: client.ObjectKey{Namespace: r.Spec.TargetVolume.Namespace, Name: r.Spec.TargetVolume.PVC},
			location: r.Spec.BackupStorageLocation, namespace: r.Spec.SourceNamespace, uploader: uploaderKopia, cancel: r.Spec.Cancel, settings: r.Spec.DataMoverConfig,
			foreign: isForeign(r.Spec.DataMover), filled: r.Spec.TargetVolume.PV,
			phase: (*velerov1.PodVolumePhase)(&r.Status.Phase), message: &r.Status.Message, progress: &r.Status.Progress,
			accepted: &r.Status.AcceptedTimestamp, started: &r.Status.StartTimestamp, completed: &r.Status.CompletionTimestamp,
		}
	}
	r, ok := o.(*v2alpha1.DataUpload)
	if !ok {
		r = &v2alpha1.DataUpload{}
	}
	return view{
		Object: r, kind: kindUpload, mover: moverpod.ValueUpload, claim: client.ObjectKey{Namespace: r.Spec.SourceNamespace, Name: r.Spec.SourcePVC},
		location: r.Spec.BackupStorageLocation, namespace: r.Spec.SourceNamespace, uploader: uploaderKopia, cancel: r.Spec.Cancel, settings: r.Spec.DataMoverConfig,
		foreign: isForeign(r.Spec.DataMover),
		phase:   (*velerov1.PodVolumePhase)(&r.Status.Phase), message: &r.Status.Message, progress: &r.Status.Progress,
		accepted: &r.Status.AcceptedTimestamp, started: &r.Status.StartTimestamp, completed: &r.Status.CompletionTimestamp,
	}
}

// isForeign reports whether a data mover is none of Velero's own, whose place this service takes.
func isForeign(mover string) bool { return mover != "" && mover != "velero" }

// isOfClaim reports whether the mover of a request has a volume of its own.
func (v view) isOfClaim() bool { return v.kind == kindUpload || v.kind == kindDownload }

// requestKey names a request among those of all kinds.
func (v view) requestKey() string { return v.kind + "/" + v.GetName() }

// moverNode is the node whose movers are counted with its mover; empty while no restore has been accepted, and for
// the movers of claims, which are scheduled.
func (v view) moverNode() string {
	switch r := v.Object.(type) {
	case *velerov1.PodVolumeBackup:
		return r.Spec.Node
	case *velerov1.PodVolumeRestore:
		return r.Status.Node
	}
	return ""
}

// setNode notes where its mover runs, of a request for a claim.
func (v view) setNode(node string) {
	switch r := v.Object.(type) {
	case *v2alpha1.DataUpload:
		r.Status.Node, r.Status.NodeOS = node, "linux"
	case *v2alpha1.DataDownload:
		r.Status.Node = node
	}
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
	version := velerov1.GroupVersion
	if v.isOfClaim() {
		version = v2alpha1.GroupVersion
	}
	return metav1.OwnerReference{APIVersion: version.String(), Kind: v.kind, Name: v.GetName(), UID: v.GetUID(), Controller: ptr.To(true)}
}

// logArgs are the attributes of what is logged about it.
func (v view) logArgs(args ...any) []any {
	about := []any{"kind", v.kind, "name", v.GetName()}
	if v.claim.Name != "" {
		about = append(about, "claim", v.claim.String())
	} else {
		about = append(about, "pod", v.pod.Namespace+"/"+v.pod.Name, "volume", v.volume)
	}
	return append(about, args...)
}
