package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
)

const pollEvery = 250 * time.Millisecond

var namespacesGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespaces makes every target namespace exist. Those that exist are left as they are.
func (r *run) namespaces(ctx context.Context) error {
	if err := r.each(ctx, r.Plan.Of(plan.NamespaceObject), r.storedNamespace); err != nil {
		return err
	}
	var bare []string
	for _, ns := range r.Plan.Namespaces() {
		if _, ok := r.Plan.NamespaceObject(ns.Source); !ok {
			bare = append(bare, ns.Target)
		}
	}
	return dispatch.Run(ctx, flat(make([]int32, len(bare))), dispatch.Work{
		Do:      func(ctx context.Context, v int32) { r.bareNamespace(ctx, bare[v]) },
		Weight:  func(int32) int64 { return 0 },
		Passive: func(int32) bool { return false },
		Limit:   r.limiter.Limit,
	})
}

// storedNamespace creates a namespace as the backup has it.
func (r *run) storedNamespace(ctx context.Context, v int32) {
	target := r.Plan.MapNamespace(r.Plan.Node(v).Name)
	it, err := r.load(ctx, v)
	if err != nil {
		r.lose(target, err)
		r.end(ctx, v, err)
		return
	}
	it.target.Name = target
	reset.Namespace(it.body, target)
	now, later := r.ownersOf(it)
	result, err := r.ensure(ctx, target, it.body, true)
	if err != nil {
		r.lose(target, err)
		r.end(ctx, v, err)
		return
	}
	r.Recorder.Done(v, result.Action)
	if result.Fresh {
		if len(now) > 0 { // an owner of another pass cannot be known yet, so that now is empty; kept for completeness
			r.complete(ctx, v, result.UID, "ownerReferences", now)
		}
		r.patchOwners(ctx, r.owners.Await(v, result.UID, "", now, later))
	}
	r.settle(ctx, v, result)
}

// bareNamespace creates a namespace the backup has no object of.
func (r *run) bareNamespace(ctx context.Context, target string) {
	body := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": target}}
	if _, err := r.ensure(ctx, target, body, false); err != nil && ctx.Err() == nil {
		r.lose(target, err)
		r.Recorder.Error(outcome.General, fmt.Sprintf("namespace %q: %v", target, err))
	}
}

// lose notes that nothing can be restored into a namespace.
func (r *run) lose(target string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost[target] = err.Error()
}

func (r *run) lostNamespace(target string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost[target]
}

// ensure creates a namespace unless it exists, and waits for one of that name that is going away.
func (r *run) ensure(ctx context.Context, name string, body map[string]any, stored bool) (apply.Result, error) {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		return apply.Result{}, fmt.Errorf("not a namespace name: %s", msgs[0])
	}
	start := r.Clock.Now()
	target := apply.Target{GVR: namespacesGVR, Name: name}
	for {
		uid, err := r.client.Create(ctx, target, body)
		if err == nil {
			return apply.Result{Action: apply.Created, UID: uid, Fresh: true}, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return apply.Result{}, err
		}
		raw, err := r.client.Get(ctx, target)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return apply.Result{}, err
		}
		live, err := liveOf(raw)
		if err != nil {
			return apply.Result{}, err
		}
		if live.Metadata.DeletionTimestamp == nil {
			return r.existing(live.Metadata.UID, stored), nil
		}
		if r.Clock.Since(start) > r.TerminatingTimeout {
			return apply.Result{}, fmt.Errorf("one of that name is still being deleted after %s", r.TerminatingTimeout)
		}
		if !r.wait(ctx) {
			return apply.Result{}, context.Cause(ctx)
		}
	}
}

// existing is the outcome of a namespace that is there. After a takeover it may be the work of the holder before; a
// namespace carries no label that tells.
func (r *run) existing(uid types.UID, stored bool) apply.Result {
	if stored && r.Resumed {
		return apply.Result{Action: apply.Created, UID: uid}
	}
	return apply.Result{Action: apply.Skipped, UID: uid}
}

// live is what decides about an existing object.
type live struct {
	Metadata struct {
		UID               types.UID `json:"uid"`
		DeletionTimestamp *string   `json:"deletionTimestamp"`
	} `json:"metadata"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func liveOf(raw []byte) (*live, error) {
	var l live
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, fmt.Errorf("decode the existing object: %w", err)
	}
	return &l, nil
}

// wait pauses between two looks at the same thing; false when ctx ended first.
func (r *run) wait(ctx context.Context) bool {
	timer := r.Clock.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
