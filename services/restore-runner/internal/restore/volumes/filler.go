package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/restored"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Why a claim is not filled from its snapshot.
var (
	errUnnamed = errors.New("annotation " + velerov1.LabelVolumeSnapshotName + " of the claim in the backup: missing or empty")
	errMissing = errors.New("the VolumeSnapshot or its content is not in the backup")
	errStatic  = errors.New(`spec.storageClassName is "": no volume is provisioned for it`)
)

// FillerConfig is what claims are filled with.
type FillerConfig struct {
	Plan      *plan.Plan
	Recorder  *outcome.Recorder
	Source    object.Source
	Catalog   *object.Catalog
	Existing  *object.LiveReader
	Volumes   *Decisions
	Snapshots *plan.Snapshots
	// Restore is the restore as its objects know it.
	Restore restored.Restore
	// Job is the restore as its DataDownloads know it, MoveTimeout what bounds their steps.
	Job         podvolume.RestoreJob
	MoveTimeout time.Duration
	// Defined reports that this restore defined a kind.
	Defined  func(schema.GroupResource) bool
	Timeouts object.DelayTimeouts
}

// Filler makes what claims are filled from. Safe for concurrent use.
type Filler struct {
	FillerConfig
	classes snapshotClasses
}

// NewFiller returns a filler.
func NewFiller(cfg FillerConfig) *Filler { return &Filler{FillerConfig: cfg} }

// emptyRemedy is what to do where the data of a claim cannot be had.
const emptyRemedy = "; with restorePVs false it gets a new, empty volume"

// Fill makes the VolumeSnapshot and the content of a claim that is about to be created, and has the
// claim be filled from it. Other objects are left alone, and so is a claim that the cluster has.
// What cannot be filled is an error: an application must not begin anew on an empty volume.
// Repeating it, also by another holder of the restore, makes no second pair.
func (f *Filler) Fill(ctx context.Context, e *outcome.Entry, o *object.Object) error {
	source, name := f.Plan.Source(o.Node), f.Plan.Name(o.Node)
	if f.Plan.Kind(o.Node).String() != "persistentvolumeclaims" || !f.Volumes.Filled(source, name) {
		return nil
	}
	moved := f.Volumes.isMoved(source, name)
	there, err := f.claimExists(ctx, o)
	if there && moved {
		e.Warn("the claim is in the cluster: its moved data is not restored")
	}
	if err != nil || there {
		return err
	}
	stored, err := jsonlimit.UnmarshalObject(o.Raw)
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	annotations := object.MapAt(object.MapAt(stored, "metadata"), "annotations")
	snapshot := types.NamespacedName{Namespace: source, Name: object.TextAt(annotations, velerov1.LabelVolumeSnapshotName)}
	switch {
	case moved:
		if err := f.fillMoved(ctx, e, o, stored); err != nil {
			return fmt.Errorf("moved CSI snapshot of the claim: %w%s", err, emptyRemedy)
		}
		return nil
	case snapshot.Name == "":
		return fmt.Errorf("CSI snapshot of the claim: %w", errUnnamed)
	}
	if err := f.fillClaim(ctx, e, o, snapshot, object.TextAt(object.MapAt(stored, "spec"), "volumeName")); err != nil {
		return fmt.Errorf("CSI snapshot %s of the claim: %w%s", snapshot, err, emptyRemedy)
	}
	return nil
}

// claimExists reports that the cluster has a claim of that name which this restore did not make. One that
// is being deleted is waited for: the claim must not be created without what it is filled from.
func (f *Filler) claimExists(ctx context.Context, o *object.Object) (bool, error) {
	live, err := f.Existing.Get(ctx, o.Target)
	if err != nil {
		return false, err
	}
	meta := object.MapAt(live, "metadata")
	o.Exists = live != nil && !f.Existing.Manager.IsCreatedByRestore(meta)
	if o.Exists && meta["deletionTimestamp"] != nil {
		return false, f.Timeouts.Deleted()
	}
	return o.Exists, nil
}

// isStatic reports that no volume is provisioned for a claim.
func isStatic(o *object.Object) bool {
	class, ok := object.MapAt(o.Body, "spec")["storageClassName"].(string)
	return ok && class == ""
}

func (f *Filler) fillClaim(ctx context.Context, e *outcome.Entry, o *object.Object, snapshot types.NamespacedName, volume string) error {
	stored, err := f.readSnapshot(ctx, snapshot)
	if err != nil {
		return err
	}
	if isStatic(o) {
		return errStatic
	}
	class, err := f.contentClass(ctx, e, stored)
	if err != nil {
		return err
	}
	in := types.NamespacedName{Namespace: o.Target.Namespace, Name: restored.Name(f.Restore.UID, snapshot.Name)}
	if !f.Snapshots.First(snapshot) {
		in.Name = restored.NameOf(f.Restore.UID, snapshot)
	}
	if err := f.makeObject(ctx, csisnapshot.Contents, stored.Content(f.Restore, in, class)); err != nil {
		return err
	}
	if err := f.makeObject(ctx, csisnapshot.Snapshots, stored.Snapshot(f.Restore, in)); err != nil {
		return err
	}
	if err := setDataSource(o, in.Name, stored.Size()); err != nil {
		return err
	}
	made := outcome.Volume{ClaimNamespace: o.Target.Namespace, Claim: o.Target.Name, CSI: &outcome.CSI{
		Handle: stored.Handle(), Driver: stored.Driver(), Size: stored.Size(), Object: in.Name,
	}}
	made.CSI.ReclaimPolicy, made.CSI.Labels = f.Volumes.Original(volume)
	f.Recorder.Provision(o.Node, made)
	e.Info("filled from CSI snapshot " + stored.Handle())
	return nil
}

// readSnapshot reads a snapshot from the backup, regardless of the filters of the restore.
func (f *Filler) readSnapshot(ctx context.Context, name types.NamespacedName) (*restored.Stored, error) {
	item, ok := f.Snapshots.Snapshot(name)
	if !ok {
		return nil, errMissing
	}
	snapshot, err := f.Source.Read(ctx, item)
	if err != nil {
		return nil, fmt.Errorf("read from the backup: %w", err)
	}
	content, err := restored.ContentOf(snapshot)
	if err != nil {
		return nil, err
	}
	if item, ok = f.Snapshots.Content(content); !ok {
		return nil, errMissing
	}
	raw, err := f.Source.Read(ctx, item)
	if err != nil {
		return nil, fmt.Errorf("read from the backup: %w", err)
	}
	return restored.Read(snapshot, raw)
}

// makeObject creates one of the pair, or finds the one that an earlier attempt of this restore made.
func (f *Filler) makeObject(ctx context.Context, gr schema.GroupResource, o client.Object) error {
	body, err := restored.Encode(o)
	if err != nil {
		return err
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	result := f.Existing.Client.Apply(ctx, apply.Request{
		Target: apply.Target{GVR: snapshotv1.SchemeGroupVersion.WithResource(gr.Resource), Namespace: o.GetNamespace(), Name: o.GetName()},
		Kind:   kind, Object: body, Resumed: true, New: f.Defined(gr),
		Normalize: func(live map[string]any) { apply.NormalizeObject(live, gr, &apply.ResetOptions{}) },
	})
	switch {
	case result.Err != nil:
		return f.Timeouts.Of(fmt.Errorf("create %s %s: %w", kind, o.GetName(), result.Err))
	case result.Action == apply.Failed:
		return errors.New(result.Warning)
	}
	return nil
}

// setDataSource makes a VolumeSnapshot the data source of a claim.
func setDataSource(o *object.Object, snapshot string, size int64) error {
	spec, err := unbindClaim(o, size)
	if err == nil {
		spec["dataSource"] = map[string]any{"apiGroup": snapshotv1.GroupName, "kind": "VolumeSnapshot", "name": snapshot}
	}
	return err
}

// unbindClaim makes the spec of a claim that of one which has no volume yet, and returns it. It requests at
// least the storage that its data needs. Actions may still refer to parts of the body.
func unbindClaim(o *object.Object, size int64) (map[string]any, error) {
	spec := maps.Clone(object.MapAt(o.Body, "spec"))
	if spec == nil {
		return nil, errors.New("spec: missing or not an object")
	}
	delete(spec, "volumeName")
	delete(spec, "dataSource")
	delete(spec, "dataSourceRef") // the API server copies dataSource
	o.Body["spec"] = spec
	resources := maps.Clone(object.MapAt(spec, "resources"))
	requests := maps.Clone(object.MapAt(resources, "requests"))
	storage := string(corev1.ResourceStorage)
	if asked, err := apiresource.ParseQuantity(object.TextAt(requests, storage)); size <= 0 || err == nil && asked.CmpInt64(size) >= 0 {
		return spec, nil
	}
	if resources == nil {
		resources = map[string]any{}
	}
	if requests == nil {
		requests = map[string]any{}
	}
	requests[storage] = apiresource.NewQuantity(size, apiresource.BinarySI).String()
	resources["requests"], spec["resources"] = requests, resources
	return spec, nil
}
