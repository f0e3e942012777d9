package restore

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/parked"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
)

// object restores one object that is neither a definition nor a Namespace. It is called again for
// one that had to wait.
func (r *run) object(ctx context.Context, v int32) *dispatch.Wait {
	s := r.waiting.Resume(v, r.Recorder)
	if s.Wait == nil {
		r.prepareNamespace(ctx, v)
	}
	if wait, over := r.reachable(ctx, v, s); over {
		return wait
	}
	it, err := r.loader.Load(ctx, v)
	if err != nil {
		r.end(ctx, s.Entry, v, err)
		return nil
	}
	if s.Wait == nil {
		if skip := r.skipped(it); skip != nil {
			r.skip(ctx, v, skip)
			return nil
		}
		r.reportUnsupported(s.Entry, it)
	}
	reset.Normalize(it.Body, r.Plan.Kind(v).GroupResource(), &r.reset)
	t := &chainRun{run: r, it: it, actions: r.chains[r.Plan.Kind(v)], parked: s, parks: true}
	if t.actions != nil {
		if wait, over := t.follow(ctx); wait != nil || over {
			return wait
		}
		s.Object = t.object
	}
	return r.createOrPark(ctx, s, it)
}

// end is the outcome of an object that got no further than err. When the restore ends here it has
// no outcome: whoever goes on restores it.
func (r *run) end(ctx context.Context, e *outcome.Entry, v int32, err error) {
	if stop.Ending(ctx, err) {
		return
	}
	e.Fail(err)
	e.Commit()
	r.settle(ctx, v, apply.Result{})
}

// done is the outcome of an object that is in the cluster now, or was left as it is. What it owes
// is recorded with it.
func (r *run) done(ctx context.Context, e *outcome.Entry, v int32, result apply.Result, now []any, later []relink.Reference) {
	uid := result.UID
	if !r.Plan.Owns(v) {
		uid = ""
	}
	e.Done(result.Action, uid)
	owes := result.Fresh && len(later) > 0
	if owes {
		values := make([]map[string]any, len(later))
		for i := range later {
			values[i] = later[i].Value
		}
		e.Owes(&outcome.Owes{UID: result.UID, Now: now, Later: values})
	}
	e.Commit()
	failpoint.Hit("restore-runner/after-outcome")
	if owes {
		child := relink.Child{Node: v, UID: result.UID, Version: result.Version, Base: now, Namespace: r.place(v)}
		if due, now, err := r.owners.Await(child, later); err != nil {
			r.Recorder.Error(v, fmt.Sprintf("metadata.ownerReferences could not be added: %v", err))
		} else if now {
			r.patchOwner(ctx, due)
		}
	}
	r.settle(ctx, v, result)
}

func (r *run) skip(ctx context.Context, v int32, skip *reset.Skip) {
	e := r.Recorder.Begin(v)
	message := "not restored: " + skip.Reason
	if skip.Report {
		e.Warn(message)
	} else {
		e.Info(message)
	}
	r.done(ctx, e, v, apply.Result{Action: apply.Skipped}, nil, nil)
}

// create brings the normalized object into the cluster and gives it its owners. again reports that
// it went away which stood there; then, and after an error, the object has no outcome yet.
func (r *run) create(ctx context.Context, s *parked.State, it *object.Object) (again bool, err error) {
	kind := r.Plan.Kind(it.Node)
	if kind.String() == claimsGVR.Resource {
		r.followVolume(it)
	}
	reset.Place(it.Body, it.Target.Namespace, &r.reset)
	owners := r.ownersOf(ctx, it)
	if len(owners.now) > 0 {
		it.Metadata()["ownerReferences"] = owners.now
	}
	if err := r.pause(ctx, it); err != nil {
		return false, err
	}
	failpoint.Hit("restore-runner/before-create")
	it.Tried = s.Tried
	request := r.request(it, kind.GVK.Kind)
	request.New = r.fresh[kind.GroupResource()]
	rival, taken := r.names.Rival(it.Node)
	request.Taken = taken
	result := r.client.Apply(ctx, request)
	failpoint.Hit("restore-runner/after-create")
	switch {
	case errors.Is(result.Err, apply.ErrGoing):
		return true, nil
	case len(owners.later) > 0 && !s.Yielded && refusedAsIs(result.Err):
		return false, &refusal{err: result.Err, owners: owners.later}
	case result.Err != nil:
		owners.report(s.Entry)
		return false, r.timeouts.Of(result.Err)
	case taken && result.Action == apply.Failed:
		owners.report(s.Entry)
		return false, r.names.Collision(it.Node, rival)
	}
	owners.report(s.Entry)
	if r.brought(ctx, s.Entry, it, &result) && r.catchUp(ctx, s.Entry, it.Node, &result, owners.now) {
		if result.Action == apply.Created {
			r.warnOfWebhooks(ctx, s.Entry, it)
		}
		r.done(ctx, s.Entry, it.Node, result, owners.now, owners.later)
	}
	return false, nil
}

// request is what brings an object into the cluster.
func (r *run) request(it *object.Object, kind string) apply.Request {
	return apply.Request{
		Target: it.Target, Kind: kind, Object: it.Body, NoCreate: it.Exists,
		Normalize: r.normalizeLive(it),
		Update:    r.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate,
		Resumed:   r.History.Resumed || it.Tried, Intended: r.History.Intents[it.Node],
		Intend: func(ctx context.Context, intent apply.Intent) error {
			r.Recorder.Intend(it.Node, intent)
			err := r.Recorder.Sync(ctx)
			failpoint.Hit("restore-runner/intended")
			return err
		},
	}
}

// brought notes what came of a request, and completes the object. False when it has its outcome
// already, or none because ctx ended: a request cut off says nothing about the object.
func (r *run) brought(ctx context.Context, e *outcome.Entry, it *object.Object, result *apply.Result) bool {
	if result.Err != nil {
		r.end(ctx, e, it.Node, result.Err)
		return false
	}
	if result.Warning != "" {
		if ctx.Err() != nil {
			return false
		}
		e.Warn(result.Warning)
	}
	return !result.Fresh || r.completeFields(ctx, e, it, result)
}

// reportUnsupported reports what the object asks for and this version does not do.
func (r *run) reportUnsupported(e *outcome.Entry, it *object.Object) {
	if annotation := reset.Unsupported(it.Body, r.Plan.Kind(it.Node).GroupResource()); annotation != "" {
		e.Error("annotation " + annotation + " asks for what this version does not do; the object is restored without it")
	}
	switch r.Plan.Kind(it.Node).String() {
	case "persistentvolumeclaims":
		r.reportClaimData(e, it)
	case "pods":
		r.reportPodData(e, it)
	}
}

// normalizeLive makes a live object comparable with the stored one. What the mapping and the
// decisions about volumes changed in the stored one is in the live one already.
func (r *run) normalizeLive(it *object.Object) func(map[string]any) {
	spec, ok := it.Body["spec"].(map[string]any)
	unbound := !ok || spec["volumeName"] == nil
	return func(live map[string]any) {
		reset.Normalize(live, r.Plan.Kind(it.Node).GroupResource(), &reset.Options{
			PreserveNodePorts: r.reset.PreserveNodePorts,
			Reprovision:       func(string) bool { return unbound },
		})
	}
}
