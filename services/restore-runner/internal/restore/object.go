package restore

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/parked"
)

// object restores one object that is neither a definition nor a Namespace. It is called again for
// one that had to wait.
func (r *run) object(ctx context.Context, v int32) *dispatch.Wait {
	s := r.waiting.Resume(v, r.Recorder)
	if s.Wait == nil {
		r.namespaces.Prepare(ctx, v)
	}
	if wait, over := r.reachable(ctx, v, s); over {
		return wait
	}
	it, err := r.loader.Load(ctx, v)
	if err != nil {
		r.settler.Fail(ctx, s.Entry, v, err)
		return nil
	}
	if s.Wait == nil {
		if skip := r.screen.Skipped(it); skip != nil {
			r.settler.Skip(ctx, v, skip)
			return nil
		}
		r.screen.Report(s.Entry, it)
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

// create brings the normalized object into the cluster and gives it its owners. again reports that
// it went away which stood there; then, and after an error, the object has no outcome yet.
func (r *run) create(ctx context.Context, s *parked.State, it *object.Object) (again bool, err error) {
	kind := r.Plan.Kind(it.Node)
	if kind.String() == "persistentvolumeclaims" {
		r.volumes.FollowVolume(it)
	}
	reset.Place(it.Body, it.Target.Namespace, &r.reset)
	owners := r.owners.References(ctx, it)
	if len(owners.Now) > 0 {
		it.Metadata()["ownerReferences"] = owners.Now
	}
	if err := r.pauser.Pause(ctx, it); err != nil {
		return false, err
	}
	failpoint.Hit("restore-runner/before-create")
	it.Tried = s.Tried
	request := r.creator.Request(it, kind.GVK.Kind)
	request.New = r.fresh[kind.GroupResource()]
	rival, taken := r.names.Rival(it.Node)
	request.Taken = taken
	result := r.client.Apply(ctx, request)
	failpoint.Hit("restore-runner/after-create")
	switch {
	case errors.Is(result.Err, apply.ErrGoing):
		return true, nil
	case len(owners.Later) > 0 && !s.Yielded && refusedAsIs(result.Err):
		return false, &refusal{err: result.Err, owners: owners.Later}
	case result.Err != nil:
		owners.Report(s.Entry)
		return false, r.timeouts.Of(result.Err)
	case taken && result.Action == apply.Failed:
		owners.Report(s.Entry)
		return false, r.names.Collision(it.Node, rival)
	}
	owners.Report(s.Entry)
	if r.creator.Complete(ctx, s.Entry, it, &result) && r.owners.CatchUp(ctx, s.Entry, it.Node, &result, owners.Now) {
		if result.Action == apply.Created {
			r.webhooks.Warn(ctx, s.Entry, it)
		}
		r.settler.Done(ctx, s.Entry, it.Node, result, owners.Now, owners.Later)
	}
	return false, nil
}
