package restore

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/podhook"
)

// objectCreation brings one object after another into the cluster, with the volume it needs, its owners
// and its pause. Safe for concurrent use.
type objectCreation struct {
	plan     *plan.Plan
	client   *apply.Client
	creator  *flight.Creator
	finisher *flight.Finisher
	volumes  *volumes.Provisioner
	claims   *volumes.Filler
	pods     *volumes.PodFiller
	pauser   *pausing.Pauser
	webhooks *flight.LateWebhooks
	quotas   *flight.Quotas
	hooks    *podhook.Runner
	keeper   *endpointsKeeper
	names    *object.Names
	reset    *apply.ResetOptions
	catalog  *object.Catalog
	// defined reports that this restore defined a kind.
	defined  func(schema.GroupResource) bool
	timeouts object.DelayTimeouts
}

// createObject brings the normalized object into the cluster and gives it its owners. again reports that
// it went away which stood there; then, and after an error, the object has no outcome yet.
func (c *objectCreation) createObject(ctx context.Context, s *actions.PendingState, o *object.Object) (again bool, err error) {
	kind := o.Kind
	if kind.String() == "persistentvolumeclaims" {
		if err := c.volumes.FollowVolume(ctx, o); err != nil {
			return false, err
		}
	}
	apply.PlaceObject(o.Body, o.Target.Namespace, c.reset)
	owners := c.finisher.Owners.References(ctx, o)
	if len(owners.Now) > 0 {
		o.Metadata()["ownerReferences"] = owners.Now
	}
	if err := c.pauser.Pause(ctx, o); err != nil {
		return false, err
	}
	failpoint.Hit("restore-runner/before-create")
	o.Tried = s.Tried
	if o.Status != nil && c.catalog.HasPlainStatus(o.Target.GVR) {
		o.Body["status"] = o.Status
	}
	request := c.creator.Request(o, kind.GVK.Kind)
	request.New = c.defined(kind.GroupResource())
	rival, taken := c.names.Rival(o.Node)
	request.Taken = taken
	request.Present = c.quotas.Present(ctx, o)
	result := c.client.Apply(ctx, request)
	failpoint.Hit("restore-runner/after-create")
	switch {
	case errors.Is(result.Err, apply.ErrGoing):
		return true, nil
	case len(owners.Later) > 0 && !s.Yielded && refusedAsIs(result.Err):
		return false, &orderRefusedError{err: result.Err, owners: owners.Later}
	case result.Err != nil:
		owners.Report(s.Entry)
		return false, c.timeouts.Of(result.Err)
	case taken && result.Action == apply.Failed:
		owners.Report(s.Entry)
		if c.finisher.DryRun {
			s.Entry.Unknown("it counts as unchanged if it equals the other one")
		}
		return false, c.names.Collision(o.Node, rival)
	}
	if result.Fresh {
		owners.Report(s.Entry)
	}
	if c.creator.Complete(ctx, s.Entry, o, &result) && c.volumes.Settle(ctx, s.Entry, o, &result) && c.pods.Request(ctx, s.Entry, o, &result) && c.finisher.Owners.CatchUp(ctx, s.Entry, o.Node, &result, owners.Now) {
		if result.Action == apply.Created {
			c.followCreation(ctx, s.Entry, o)
		}
		hooks := c.hooks.Of(s.Entry, o, &result)
		c.finisher.Done(ctx, s.Entry, o.Node, result, owners.Now, owners.Later)
		c.hooks.RunLater(o.Node, hooks)
	}
	return false, nil
}

// followCreation records what a user should know about an object that was created, and notes it for others.
func (c *objectCreation) followCreation(ctx context.Context, e *outcome.Entry, o *object.Object) {
	if o.Stored != "" {
		e.Info(fmt.Sprintf("created as %s: the cluster does not serve %s, in which it is stored", object.TextAt(o.Body, "apiVersion"), o.Stored))
	}
	c.webhooks.Warn(ctx, e, o)
	c.quotas.AwaitCounted(ctx, o)
	c.keeper.noteCreated(o)
	if c.plan.GuardsLate(o.Node) {
		e.Warn("the Pods that it guards were restored before it: an APIService of this restore serves its API")
	}
}
