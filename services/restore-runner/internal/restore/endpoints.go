package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

const (
	// endpointsSettled is how long Endpoints have to be there before they stay: a controller that still
	// works off the deletion of their namespace has decided to remove them before it saw their Service.
	endpointsSettled = 2 * time.Second
	// endpointsWatched is for how long after the last creation it is looked whether they stay.
	endpointsWatched = 30 * time.Second
	// endpointsRounds is how often Endpoints that go are made again.
	endpointsRounds = 5
)

// endpointsKeeper makes the Endpoints of the restore again that a controller removes. Safe for concurrent
// use.
type endpointsKeeper struct {
	*restoreRun
	bodies actions.PendingStore // as they were created

	mu   sync.Mutex
	last time.Time // when one of them was created, here or by an earlier holder

	over bool // they are left to themselves
}

func newEndpointsKeeper(r *restoreRun) *endpointsKeeper {
	k := &endpointsKeeper{restoreRun: r, bodies: actions.PendingStore{Dir: r.cfg.Dir}, over: r.cfg.Idle}
	if r.cfg.History.Resumed {
		k.last = r.cfg.Clock.Now()
	}
	return k
}

// noteCreated notes an object that was created. Endpoints are kept as they are.
func (k *endpointsKeeper) noteCreated(o *object.Object) {
	if k.cfg.Plan.Kind(o.Node).String() != "endpoints" {
		return
	}
	k.mu.Lock()
	k.last = k.cfg.Clock.Now()
	k.mu.Unlock()
	if raw, err := json.Marshal(o.Body); err == nil {
		_ = k.bodies.Put(o.Node, &actions.PendingState{}, raw) // else it is made from the backup, should it go
	}
}

// settleEndpoints returns when all Endpoints of the restore stayed, or are given up with a warning. An error means
// that ctx ended or that the restore is to stop.
func (k *endpointsKeeper) settleEndpoints(ctx context.Context) error {
	if k.over {
		return nil
	}
	nodes := k.createdNodes()
	k.over = len(nodes) == 0
	poller, refused := object.Poller{Clock: k.cfg.Clock, Stop: k.stop}, map[int32]error{}
	for round := 0; len(nodes) > 0; round++ {
		for k.cfg.Clock.Since(k.last) < endpointsSettled {
			if err := poller.Pause(ctx); err != nil {
				return err
			}
		}
		nodes = k.findMissing(ctx, nodes)
		for _, v := range nodes {
			if k.over = round == endpointsRounds; k.over {
				k.cfg.Recorder.Warn(v, fmt.Sprintf("a controller removed it after its creation, and it is not there again: %v; restore it once more",
					cmp.Or(refused[v], fmt.Errorf("removed %d times", round+1))))
				continue
			}
			if refused[v] = k.createAgain(ctx, v); object.IsEnding(ctx, refused[v]) {
				return refused[v]
			}
			k.last = k.cfg.Clock.Now()
		}
		if k.over {
			return nil
		}
	}
	return nil
}

// settleAgain settles the Endpoints once more, when controllers have had the time to remove them, or once ended is
// closed. Those that go later are removed on purpose.
func (k *endpointsKeeper) settleAgain(ctx context.Context, ended <-chan struct{}) error {
	if k.over {
		return nil
	}
	timer := k.cfg.Clock.NewTimer(endpointsWatched - k.cfg.Clock.Since(k.last))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return k.settleEndpoints(ctx)
}

// createdNodes returns the Endpoints that this restore created.
func (k *endpointsKeeper) createdNodes() []int32 {
	var nodes []int32
	for v := range int32(k.cfg.Plan.Len()) {
		if k.cfg.Plan.Kind(v).String() == "endpoints" && k.cfg.Recorder.Action(v) == apply.Created {
			nodes = append(nodes, v)
		}
	}
	return nodes
}

// findMissing returns those of the Endpoints that are not in the cluster. Namespaces that cannot be listed
// count as complete.
func (k *endpointsKeeper) findMissing(ctx context.Context, nodes []int32) []int32 {
	live := map[string]map[string]bool{} // by namespace; nil where it is not known
	var gone []int32
	for _, v := range nodes {
		target := k.names.Target(v)
		names, listed := live[target.Namespace]
		if !listed {
			names = map[string]bool{}
			if err := k.existing.Client.EachName(ctx, target, func(name string) { names[name] = true }); err != nil {
				names = nil
			}
			live[target.Namespace] = names
		}
		if names != nil && !names[target.Name] {
			gone = append(gone, v)
		}
	}
	return gone
}

// createAgain creates Endpoints as they were created before.
func (k *endpointsKeeper) createAgain(ctx context.Context, v int32) error {
	body, err := k.readCreatedBody(ctx, v)
	if err != nil {
		return err
	}
	_, err = k.existing.Client.Create(ctx, k.names.Target(v), body)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return err
	}
	k.cfg.Recorder.Info(v, "created again: a controller removed it after its creation")
	return nil
}

// readCreatedBody returns what was created. What an earlier holder created is made from the backup.
func (k *endpointsKeeper) readCreatedBody(ctx context.Context, v int32) (map[string]any, error) {
	st := k.bodies.Resume(v, k.cfg.Recorder)
	raw, err := st.Read()
	if err == nil && len(raw) > 0 {
		err = k.bodies.Put(v, st, raw)
	}
	if err != nil {
		return nil, err
	}
	if len(raw) > 0 {
		return jsonlimit.UnmarshalObject(raw)
	}
	o, err := k.loader.Load(ctx, v)
	if err != nil {
		return nil, err
	}
	apply.NormalizeObject(o.Body, k.cfg.Plan.Kind(v).GroupResource(), k.reset)
	apply.PlaceObject(o.Body, o.Target.Namespace, k.reset)
	return o.Body, nil
}
