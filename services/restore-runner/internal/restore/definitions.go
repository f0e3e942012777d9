package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

// discoveryPatience is how long an established kind may take to appear in discovery.
const discoveryPatience = 30 * time.Second

// definitions restores CustomResourceDefinitions and waits until the server serves their kinds.
func (r *run) definitions(ctx context.Context) error {
	nodes := r.Plan.Of(plan.Definition)
	if len(nodes) == 0 {
		return nil
	}
	if err := r.each(ctx, nodes, r.definition); err != nil {
		return err
	}
	if len(r.fresh) == 0 {
		return nil
	}
	return r.discover(ctx)
}

// definition restores one definition and waits for it.
func (r *run) definition(ctx context.Context, v int32) {
	it, err := r.load(ctx, v)
	if err != nil {
		r.end(ctx, v, err)
		return
	}
	kind := r.Plan.Kind(v)
	r.complain(it)
	reset.Object(it.body, kind.GroupResource(), "", &r.reset)
	now, later := r.ownersOf(it)
	result, err := r.define(ctx, it)
	if err != nil {
		r.end(ctx, v, err)
		return
	}
	if result.Warning != "" {
		r.Recorder.Warn(v, result.Warning)
	}
	if result.Fresh {
		r.completeFields(ctx, it, result.UID)
	}
	r.Recorder.Done(v, result.Action)
	if result.Fresh {
		r.patchOwners(ctx, r.owners.Await(v, result.UID, "", now, later))
	}
	if result.Action == apply.Created || result.Action == apply.Updated {
		r.establish(ctx, it)
	}
	r.settle(ctx, v, result)
}

// define creates or updates; a definition of that name that is going away is waited for, with all its objects.
func (r *run) define(ctx context.Context, it *item) (apply.Result, error) {
	start := r.Clock.Now()
	for {
		raw, err := r.client.Get(ctx, it.target)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return apply.Result{}, err
		default:
			live, err := liveOf(raw)
			if err != nil {
				return apply.Result{}, err
			}
			if live.Metadata.DeletionTimestamp != nil {
				if r.Clock.Since(start) > r.TerminatingTimeout {
					return apply.Result{}, fmt.Errorf("one of that name is still being deleted after %s", r.TerminatingTimeout)
				}
				if !r.wait(ctx) {
					return apply.Result{}, context.Cause(ctx)
				}
				continue
			}
		}
		result := r.client.Apply(ctx, apply.Request{
			Target: it.target, Kind: "CustomResourceDefinition", Object: it.body, Normalize: r.normalizeLive(it),
			Update: r.Spec.ExistingResourcePolicy == velerov1.PolicyTypeUpdate, Mine: r.mine(), Resumed: r.Resumed,
		})
		return result, result.Err
	}
}

// establish waits until the definition's names are accepted and its objects can be stored.
func (r *run) establish(ctx context.Context, it *item) {
	spec, ok := it.body["spec"].(map[string]any)
	if !ok {
		return
	}
	names, ok := spec["names"].(map[string]any)
	if !ok {
		return
	}
	start := r.Clock.Now()
	for {
		ready, err := r.established(ctx, it.target)
		if err == nil && ready {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fresh[schema.GroupResource{Group: text(spec, "group"), Resource: text(names, "plural")}] = true
			return
		}
		if err == nil {
			err = errors.New("its conditions do not say so")
		}
		if ctx.Err() != nil {
			return
		}
		if r.Clock.Since(start) > r.ResourceTimeout {
			r.Recorder.Error(it.node, fmt.Sprintf("not established after %s: %v", r.ResourceTimeout, err))
			return
		}
		r.wait(ctx)
	}
}

func (r *run) established(ctx context.Context, t apply.Target) (bool, error) {
	raw, err := r.client.Get(ctx, t)
	if err != nil {
		return false, err
	}
	live, err := liveOf(raw)
	if err != nil {
		return false, err
	}
	met := map[string]bool{}
	for _, c := range live.Status.Conditions {
		met[c.Type] = c.Status == "True"
	}
	return met["Established"] && met["NamesAccepted"], nil
}

// discover asks the cluster again what it serves, until it names every kind that was just established.
func (r *run) discover(ctx context.Context) error {
	start := r.Clock.Now()
	for {
		catalog, err := resource.Discover(ctx, r.REST)
		if err == nil {
			r.catalog = catalog
			if r.servesAll(catalog) {
				return nil
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.Clock.Since(start) > discoveryPatience {
			r.Recorder.Warn(outcome.General, "discovery does not name every kind whose definition was restored; objects of the others will fail")
			return nil
		}
		r.wait(ctx)
	}
}

func (r *run) servesAll(catalog *resource.Catalog) bool {
	for gr := range r.fresh {
		if _, ok := catalog.Lookup(gr); !ok {
			return false
		}
	}
	return true
}
