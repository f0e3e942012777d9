package volumes

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// maxFreeAttempts is how often a volume is tried to be freed that others change meanwhile.
const maxFreeAttempts = 5

// FollowVolume sets the volume name of a claim to the name in the cluster. Volumes come before
// their claims, also as additional items of an action on the claim: the name is certain only when
// the claim is about to be created. The name of a volume that is neither part of the restore nor in
// the cluster is taken out: the claim would wait for it indefinitely.
func (p *Provisioner) FollowVolume(ctx context.Context, o *object.Object) error {
	spec := object.MapAt(o.Body, "spec")
	stored := object.TextAt(spec, "volumeName")
	if stored == "" {
		return nil
	}
	name, gone := p.Names.Volume(stored), false
	o.Volume = stored
	if node, planned := p.Plan.Find("persistentvolumes", "", stored); !planned || !p.Recorder.Concerns(node) {
		there, err := p.live.hasVolume(ctx, p.Existing, name)
		if err != nil {
			return p.Timeouts.Of(fmt.Errorf("PersistentVolume %q: %w", name, err))
		}
		gone = !there
	}
	if name == stored && !gone {
		return nil
	}
	spec = maps.Clone(spec) // actions may hold it still
	spec["volumeName"] = name
	if gone {
		delete(spec, "volumeName")
		o.Unbound = name
	}
	o.Body["spec"] = spec
	return nil
}

// Settle lets a volume and its claim find one another, and warns of a claim that will stay Pending.
// Other objects are left alone. False when ctx ended before that was done.
func (p *Provisioner) Settle(ctx context.Context, e *outcome.Entry, o *object.Object, result *apply.Result) bool {
	var err error
	switch p.Plan.Kind(o.Node).String() {
	case "persistentvolumes":
		err = p.settleVolume(ctx, o, result)
	case "persistentvolumeclaims":
		err = p.settleClaim(ctx, e, o, result)
	}
	if err != nil && ctx.Err() == nil {
		e.Warn(fmt.Sprintf("whether the claim and its volume are bound could not be found out: %v", err))
	}
	return ctx.Err() == nil
}

// settleVolume gives a created volume the UID of the live claim that names it. Without it the claim,
// which lost the volume, would not get it back.
func (p *Provisioner) settleVolume(ctx context.Context, o *object.Object, result *apply.Result) error {
	ref := object.MapAt(object.MapAt(o.Body, "spec"), "claimRef")
	namespace, name := object.TextAt(ref, "namespace"), object.TextAt(ref, "name")
	if !result.Fresh || namespace == "" || name == "" || p.Namespaces.Created(namespace) {
		return nil
	}
	claim, err := p.Existing.Get(ctx, apply.Target{GVR: claimsGVR, Namespace: namespace, Name: name})
	meta := object.MapAt(claim, "metadata")
	if claim == nil || err != nil || meta["deletionTimestamp"] != nil || object.TextAt(object.MapAt(claim, "spec"), "volumeName") != o.Target.Name {
		return err
	}
	failpoint.Hit("restore-runner/before-claim-back")
	now, err := p.Existing.Client.Patch(ctx, o.Target, map[string]any{
		"metadata": map[string]any{"uid": result.UID}, // refused for another volume of that name
		"spec":     map[string]any{"claimRef": map[string]any{"uid": meta["uid"]}},
	})
	failpoint.Hit("restore-runner/claim-back")
	if result.Version != "" { // else it is not known what else it has
		result.Version = now.Version
	}
	return err
}

// settleClaim warns of a claim that waits for a volume which does not come. What its class provisions,
// with or without a consumer, comes.
func (p *Provisioner) settleClaim(ctx context.Context, e *outcome.Entry, o *object.Object, result *apply.Result) error {
	claim := o.Body
	if len(result.Live) > 0 {
		live, err := jsonlimit.UnmarshalObject(result.Live)
		if err != nil {
			return fmt.Errorf("decode the existing claim: %w", err)
		}
		if object.TextAt(object.MapAt(live, "status"), "phase") == string(corev1.ClaimBound) {
			return nil
		}
		claim = live
	}
	if result.UID == "" || p.Volumes.Filled(p.Plan.Source(o.Node), p.Plan.Name(o.Node)) {
		return nil // not there, or the claim is waited for
	}
	var problem string
	var err error
	spec := object.MapAt(claim, "spec")
	if volume := object.TextAt(spec, "volumeName"); volume != "" {
		problem, err = p.volumeProblem(ctx, e, o, volume, result)
	} else {
		if o.Unbound != "" {
			e.Warn(fmt.Sprintf("PersistentVolume %q, which the claim names, is neither part of the restore nor in the cluster: the claim is restored without it, and gets another or a new, empty volume", o.Unbound))
		}
		class, named := object.MapAt(object.MapAt(claim, "metadata"), "annotations")[classAnnotation].(string)
		if !named {
			class, named = spec["storageClassName"].(string)
		}
		if p.plansClass(class) {
			return nil
		}
		problem, err = p.classes.findProblem(ctx, p.Existing.Client, o.Target, class, named)
	}
	if problem != "" {
		e.Warn(problem + ": the claim stays Pending until that changes")
	}
	return err
}

// plansClass reports that a StorageClass is not in the cluster since this is a dry run, which would create
// it. It counts as one that provisions volumes.
func (p *Provisioner) plansClass(class string) bool {
	node, planned := p.Plan.Find(classesGVR.GroupResource().String(), "", class)
	return p.DryRun && planned && p.Recorder.Action(node) == apply.Created
}

// volumeProblem returns why the volume that a claim names is not for it, "" where it is. A volume that
// an earlier claim of that very name left behind is freed, unless Kubernetes is to delete it, or its
// data is restored from a snapshot.
func (p *Provisioner) volumeProblem(ctx context.Context, e *outcome.Entry, o *object.Object, volume string, result *apply.Result) (string, error) {
	if p.bringsVolume(o, volume) {
		return "", nil
	}
	_, snapshot := p.Volumes.Snapshot(volume)
	mapped := p.Plan.Source(o.Node) != o.Target.Namespace
	for range maxFreeAttempts {
		live, err := p.Existing.Get(ctx, apply.Target{GVR: volumesGVR, Name: volume})
		if err != nil {
			return "", err
		}
		problem, left := judgeVolume(live, o.Target, string(result.UID))
		if problem == "" && !left {
			return "", nil
		}
		what := fmt.Sprintf("PersistentVolume %q, which the claim names, ", volume)
		policy := object.TextAt(object.MapAt(live, "spec"), "persistentVolumeReclaimPolicy")
		switch {
		case problem != "":
			return what + problem, nil
		case policy != string(corev1.PersistentVolumeReclaimRetain):
			return what + "was bound to an earlier claim of that name, and has reclaim policy " + policy, nil
		case mapped || snapshot || !result.Fresh:
			return what + "was bound to an earlier claim of that name, and is Released: remove spec.claimRef.uid of the volume to bind it", nil
		}
		failpoint.Hit("restore-runner/before-free")
		if err = p.freeVolume(ctx, live); err == nil {
			failpoint.Hit("restore-runner/volume-freed")
			e.Info(fmt.Sprintf("PersistentVolume %q, which an earlier claim of that name left Released, is freed for the claim", volume))
			return "", nil
		}
		if !apierrors.IsConflict(err) {
			return "", fmt.Errorf("free PersistentVolume %q: %w", volume, err)
		}
	}
	return fmt.Sprintf("PersistentVolume %q, which the claim names, changes all the time and could not be freed", volume), nil
}

// bringsVolume reports that this restore created the volume for the claim.
func (p *Provisioner) bringsVolume(o *object.Object, volume string) bool {
	if o.Volume != "" && p.Names.Volume(o.Volume) == volume {
		volume = o.Volume // it may have another name in the cluster
	}
	node, planned := p.Plan.Find("persistentvolumes", "", volume)
	if !planned || p.Recorder.Action(node) != apply.Created {
		return false
	}
	namespace, name := p.Volumes.Claim(volume)
	return name == "" || name == o.Target.Name && p.Plan.MapNamespace(namespace) == o.Target.Namespace
}

// judgeVolume returns why a live volume is not for a claim. left reports that an earlier claim of that
// name left it.
func judgeVolume(live map[string]any, claim apply.Target, uid string) (problem string, left bool) {
	if live == nil {
		return "is not in the cluster", false
	}
	if object.MapAt(live, "metadata")["deletionTimestamp"] != nil {
		return "is being deleted", false
	}
	ref := object.MapAt(object.MapAt(live, "spec"), "claimRef")
	namespace, name, by := object.TextAt(ref, "namespace"), object.TextAt(ref, "name"), object.TextAt(ref, "uid")
	phase := object.TextAt(object.MapAt(live, "status"), "phase")
	switch {
	case phase == string(corev1.VolumeFailed):
		return "is Failed", false
	case name == "":
		return "", false
	case namespace != claim.Namespace || name != claim.Name:
		return fmt.Sprintf("is bound to, or reserved for, claim %s/%s", namespace, name), false
	}
	return "", by != "" && by != uid
}

// freeVolume takes the UID of a claim that is gone out of exactly this version of a volume.
func (p *Provisioner) freeVolume(ctx context.Context, live map[string]any) error {
	meta := object.MapAt(live, "metadata")
	_, err := p.Existing.Client.PatchExisting(ctx, apply.Target{GVR: volumesGVR, Name: object.TextAt(meta, "name")}, map[string]any{
		"metadata": map[string]any{"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
		"spec":     map[string]any{"claimRef": map[string]any{"uid": nil, "resourceVersion": nil}},
	})
	return err
}
