package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/decoded"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/existing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// discoveryPatience is how long an established kind may take to appear in discovery.
const discoveryPatience = 30 * time.Second

// definitions restores CustomResourceDefinitions and waits until the server serves their kinds.
func (r *run) definitions(ctx context.Context) error {
	nodes := r.Plan.Of(plan.Definition)
	if len(nodes) == 0 {
		return nil
	}
	if err := r.workers.Each(ctx, r.workers.Open(nodes), r.definition); err != nil {
		return err
	}
	if len(r.fresh) == 0 {
		return nil
	}
	defer failpoint.Hit("restore-runner/kinds-discovered")
	return r.discover(ctx)
}

// definition restores one definition and waits for it.
func (r *run) definition(ctx context.Context, v int32, w delay.Waiter) *dispatch.Wait {
	s := r.waiting.Resume(v, r.Recorder)
	e := s.Entry
	it, err := r.loader.Load(ctx, v)
	if err != nil {
		r.settler.Fail(ctx, e, v, err)
		return nil
	}
	if s.Wait == nil {
		r.screen.Report(e, it)
	}
	reset.Normalize(it.Body, r.Plan.Kind(v).GroupResource(), &r.reset)
	if chain := r.chains[r.Plan.Kind(v)]; chain != nil {
		t := &chainRun{run: r, it: it, actions: chain, parked: s}
		if _, over := t.follow(ctx); over {
			return nil
		}
		s.Object = t.object
	}
	reset.Place(it.Body, "", &r.reset)
	mark := e.Mark()
	owners := r.owners.References(ctx, it)
	owners.Report(e)
	if len(owners.Now) > 0 {
		it.Metadata()["ownerReferences"] = owners.Now
	}
	it.Tried = s.Tried
	result := r.define(ctx, it)
	failpoint.Hit("restore-runner/definition-created")
	var wait *dispatch.Wait
	if wait, result.Err = r.waiting.Delay(ctx, v, s, w, result.Err, mark); wait != nil {
		return wait
	}
	if !r.creator.Complete(ctx, e, it, &result) || !r.owners.CatchUp(ctx, e, v, &result, owners.Now) {
		return nil
	}
	if result.Action == apply.Created || result.Action == apply.Updated {
		if !r.establish(ctx, e, it) {
			return nil
		}
		failpoint.Hit("restore-runner/definition-established")
	}
	r.settler.Done(ctx, e, v, result, owners.Now, owners.Later)
	return nil
}

// define creates or updates; a definition of that name that is going away, with all its objects, is
// a delay.
func (r *run) define(ctx context.Context, it *object.Object) apply.Result {
	raw, err := r.client.Get(ctx, it.Target)
	if err != nil && !apierrors.IsNotFound(err) {
		return apply.Result{Err: err}
	}
	if err == nil {
		live, err := existing.Decode(raw)
		switch {
		case err != nil:
			return apply.Result{Err: err}
		case live.Metadata.DeletionTimestamp != nil:
			return apply.Result{Err: r.timeouts.Deleted()}
		}
	}
	result := r.client.Apply(ctx, r.creator.Request(it, "CustomResourceDefinition"))
	result.Err = r.timeouts.Of(result.Err)
	return result
}

// establish waits until the definition's names are accepted and its objects can be stored. False
// when the restore ends here before.
func (r *run) establish(ctx context.Context, e *outcome.Entry, it *object.Object) bool {
	spec, ok := it.Body["spec"].(map[string]any)
	if !ok {
		return true
	}
	names, ok := spec["names"].(map[string]any)
	if !ok {
		return true
	}
	start := r.Clock.Now()
	for {
		ready, err := r.established(ctx, it.Target)
		if err == nil && ready {
			e.Served()
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fresh[schema.GroupResource{Group: decoded.Text(spec, "group"), Resource: decoded.Text(names, "plural")}] = true
			return true
		}
		if err == nil {
			err = errors.New("its conditions do not say so")
		}
		if ctx.Err() != nil {
			return false
		}
		if r.Clock.Since(start) > r.ResourceTimeout {
			e.Error(fmt.Sprintf("not established after %s: %v", r.ResourceTimeout, err))
			return true
		}
		if r.poller.Pause(ctx) != nil {
			return false
		}
	}
}

func (r *run) established(ctx context.Context, t apply.Target) (bool, error) {
	raw, err := r.client.Get(ctx, t)
	if err != nil {
		return false, err
	}
	live, err := existing.Decode(raw)
	if err != nil {
		return false, err
	}
	return live.True("Established", "NamesAccepted"), nil
}

// discover asks the cluster again what it serves, until it names every kind that was just
// established.
func (r *run) discover(ctx context.Context) error {
	start := r.Clock.Now()
	for {
		if r.catalog.Discover(ctx) == nil && r.allServed() {
			r.discovered("")
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.Clock.Since(start) > discoveryPatience {
			r.discovered("discovery does not name every kind whose definition was restored; objects of the others will fail")
			return nil
		}
		if err := r.poller.Pause(ctx); err != nil {
			return err
		}
	}
}

// discovered records, once per restore, that definitions are done with.
func (r *run) discovered(warning string) {
	if r.History.Passed(outcome.StepDefinitions) {
		return
	}
	e := r.Recorder.Begin(outcome.General)
	if warning != "" {
		e.Warn(warning)
	}
	e.Step(outcome.StepDefinitions)
	e.Commit()
}

func (r *run) allServed() bool {
	for gr := range r.fresh {
		if _, ok := r.catalog.Lookup(gr); !ok {
			return false
		}
	}
	return true
}
