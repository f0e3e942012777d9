package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

var errUnwritable = errors.New("the location cannot be written")

var (
	requestsGVR  = velerov1.GroupVersion.WithResource("podvolumerestores")
	downloadsGVR = v2alpha1.GroupVersion.WithResource("datadownloads")
)

// Request makes the PodVolumeRestores of a Pod that this restore created, or the DataDownload of a claim, and notes
// their operations for its outcome. Repeating it, also by another holder of the restore, makes no second ones. False when
// ctx ended before that was done.
func (f *PodFiller) Request(ctx context.Context, e *outcome.Entry, o *object.Object, result *apply.Result) bool {
	if o.Download != nil {
		f.requestDownload(ctx, e, o, result)
		return ctx.Err() == nil
	}
	if !f.isPod(o) {
		return true
	}
	list := f.volumesOf(o)
	if result.Action != apply.Created {
		if len(list) > 0 {
			e.Warn("the Pod was not created by this restore: the data of its volumes is not restored: " + joinVolumes(list))
		}
		return true
	}
	if result.UID == "" && !f.DryRun {
		return true // another client deleted it
	}
	for i := range list {
		v := &list[i]
		switch {
		case f.Image == "":
			e.Error(v.String() + ": its data is in a PodVolumeBackup, which this server does not restore (--restore-wait-image is not set)")
		case f.DryRun:
			e.Info(v.String() + " would be filled from snapshot " + v.snapshot.ID)
		default:
			f.requestVolume(ctx, e, o, result.UID, v)
		}
	}
	f.reportMissing(e, o, list)
	return ctx.Err() == nil
}

// NoteSkipped has the data be reported of a Pod that is left out.
func (f *PodFiller) NoteSkipped(o *object.Object, skip *apply.Skip) {
	if !f.isPod(o) {
		return
	}
	if list := f.volumesOf(o); len(list) > 0 {
		skip.Reason += "; the data of its volumes is not restored: " + joinVolumes(list)
		skip.Report = true
	}
}

func joinVolumes(list []podVolume) string {
	var names []string
	for i := range list {
		names = append(names, list[i].String())
	}
	return strings.Join(names, "; ")
}

// reportMissing reports data of volumes that the Pod does not have any more.
func (f *PodFiller) reportMissing(e *outcome.Entry, o *object.Object, list []podVolume) {
	for _, name := range f.Volumes.PodVolumes(f.Plan.Source(o.Node), f.Plan.Name(o.Node)) {
		if !slices.ContainsFunc(list, func(v podVolume) bool { return v.name == name }) {
			e.Warn("volume " + name + ": the Pod has no such volume of files any more: its data is not restored")
		}
	}
}

func (f *PodFiller) requestVolume(ctx context.Context, e *outcome.Entry, o *object.Object, uid types.UID, v *podVolume) {
	volume := &podvolume.RestoredVolume{
		Pod: types.NamespacedName{Namespace: o.Target.Namespace, Name: o.Target.Name}, PodUID: uid, Volume: v.name, Claim: v.claim,
		Source: f.Plan.Source(o.Node), Snapshot: v.snapshot.ID, Size: v.snapshot.Size, ClaimUID: v.snapshot.ClaimUID,
	}
	if err := f.requestRestore(ctx, e, &f.Restore, volume, v.snapshot.Phase); err != nil {
		e.Error(fmt.Sprintf("%s: its data is not restored, and the Pod waits for it: %v", v, err))
		return
	}
	e.Info(v.String() + ": filled from snapshot " + v.snapshot.ID)
}

// requestRestore makes the PodVolumeRestore of a volume from a snapshot of a backup in this phase.
func (f *PodFiller) requestRestore(ctx context.Context, e *outcome.Entry, job *podvolume.RestoreJob, v *podvolume.RestoredVolume, phase velerov1.PodVolumePhase) error {
	if err := f.makeRequest(ctx, job.Request(v), requestsGVR); err != nil {
		return err
	}
	what := podVolume{name: v.Volume, claim: v.Claim}
	if phase != velerov1.PodVolumePhaseCompleted {
		e.Warn(fmt.Sprintf("%s: its PodVolumeBackup is %s: what that could not read is not in the snapshot", &what, phase))
	}
	item := operation.Resource{Resource: podsResource, Namespace: v.Pod.Namespace, Name: v.Pod.Name}
	if v.Claim != "" { // the operation is one for all Pods that mount it
		item.Resource, item.Name = claimsGVR.Resource, v.Claim
	}
	f.followRequest(e, what.String(), &operation.Operation{Action: podvolume.NameRestore, ID: job.OperationID(v), Item: item})
	return nil
}

// RequestFiles makes the PodVolumeRestore of paths of a claim that a Pod has mounted, and notes its operation for the
// outcome of the claim. Repeating it makes no second one.
func (f *PodFiller) RequestFiles(ctx context.Context, e *outcome.Entry, v *podvolume.RestoredVolume, from *volumedata.FileSnapshot, paths []string) error {
	job, err := f.Restore.SelectPaths(paths)
	if err != nil {
		return err
	}
	v.Snapshot, v.ClaimUID = from.ID, from.ClaimUID
	if err := f.requestRestore(ctx, e, &job, v, cmp.Or(from.Phase, velerov1.PodVolumePhaseCompleted)); err != nil {
		return err
	}
	e.Info(fmt.Sprintf("restored from snapshot %s into volume %s of Pod %s: %q", v.Snapshot, v.Volume, v.Pod, paths))
	return nil
}

// followRequest notes the operation of a request.
func (f *PodFiller) followRequest(e *outcome.Entry, what string, op *operation.Operation) {
	full := f.operations.ReserveOperation()
	if f.Unrecorded || full != nil {
		e.Error(fmt.Sprintf("%s: whether its data is restored is not followed: %v", what, cmp.Or(full, errUnwritable)))
		return
	}
	op.Kind, op.Created = podvolume.KindRestore, f.Clock.Now().UTC()
	e.Began(op)
}

// makeRequest creates a request, or finds the one that this restore made before: for the same Pod or claim, or
// for another Pod that mounts the claim.
func (f *PodFiller) makeRequest(ctx context.Context, request client.Object, gvr schema.GroupVersionResource) error {
	body, err := restored.Encode(request)
	if err != nil {
		return err
	}
	kind := request.GetObjectKind().GroupVersionKind().Kind
	result := f.Existing.Client.Apply(ctx, apply.Request{
		Target: apply.Target{GVR: gvr, Namespace: request.GetNamespace(), Name: request.GetName()},
		Kind:   kind, Object: body, Resumed: true, CreateOnly: true,
	})
	switch {
	case result.Err != nil:
		return fmt.Errorf("create %s %s: %w", kind, request.GetName(), result.Err)
	case result.Action != apply.Created:
		return fmt.Errorf("%s %s is in the cluster, and not of this restore", kind, request.GetName())
	}
	return nil
}
