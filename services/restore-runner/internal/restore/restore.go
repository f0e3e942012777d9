package restore

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/relink"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/reset"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/volume"
)

const (
	// bodyBudget bounds the memory of the objects being worked on, in bytes.
	bodyBudget = 16 << 20
	// bodyFactor is how many times its stored size an object takes while it is decoded, changed and encoded.
	bodyFactor = 6
	// bodyOverhead is what each object takes whatever its size.
	bodyOverhead = 32 << 10
)

// Source reads the bodies of items. Safe for concurrent use.
type Source interface {
	Read(ctx context.Context, item manifest.Item) ([]byte, error)
}

// Config is one restore.
type Config struct {
	// Backup and Restore are the names for the labels.
	Backup, Restore string
	Spec            *velerov1.RestoreSpec
	Plan            *plan.Plan
	Source          Source
	Volumes         *volume.Decisions
	Catalog         *resource.Catalog
	Recorder        *outcome.Recorder
	REST            *rest.Config
	Clock           clock.WithTicker
	// Resumed tells that an earlier holder of this restore was interrupted: objects that carry its label are its own.
	Resumed bool
	// TerminatingTimeout is how long a namespace or definition of the same name may take to go away.
	TerminatingTimeout time.Duration
	// ResourceTimeout is how long a definition may take to be served.
	ResourceTimeout time.Duration
}

// Run restores every object of the plan and returns when each has an outcome in the recorder, or with the cause of ctx's
// end. The error is never about single objects.
func Run(ctx context.Context, config Config) error {
	limiter := &dispatch.Limiter{}
	client, err := apply.NewClient(config.REST, limiter, config.Clock)
	if err != nil {
		return err
	}
	r := &run{
		Config: config, client: client, limiter: limiter, owners: relink.New(), catalog: config.Catalog,
		fresh: map[schema.GroupResource]bool{}, lost: map[string]string{},
	}
	r.reset = reset.Options{
		Backup: config.Backup, Restore: config.Restore, MapNamespace: config.Plan.MapNamespace,
		PreserveNodePorts: config.Spec.PreserveNodePorts != nil && *config.Spec.PreserveNodePorts,
		Reprovision:       config.Volumes.Reprovision,
	}
	for _, note := range config.Plan.Notes() {
		if note.Warning {
			r.Recorder.Warn(note.Node, note.Message)
		} else {
			r.Recorder.Info(note.Node, note.Message)
		}
	}
	for _, pass := range []func(context.Context) error{r.definitions, r.namespaces, r.others} {
		if err := pass(ctx); err != nil {
			return err
		}
	}
	return nil
}

type run struct {
	Config
	client  *apply.Client
	limiter *dispatch.Limiter
	owners  *relink.Book
	reset   reset.Options

	// Written between passes only.
	catalog *resource.Catalog
	fresh   map[schema.GroupResource]bool // kinds defined by this restore

	mu   sync.Mutex
	lost map[string]string // target namespaces that could not be prepared -> why
}

// others is the last pass.
func (r *run) others(ctx context.Context) error {
	return r.work(ctx, r.Plan.Graph(), func(v int32) bool {
		return int(v) >= r.Plan.Len() || r.Plan.Class(v) != plan.Other
	}, r.object)
}

// work runs do for every vertex that is not passive.
func (r *run) work(ctx context.Context, g dispatch.Graph, passive func(v int32) bool, do func(context.Context, int32)) error {
	return dispatch.Run(ctx, g, dispatch.Work{
		Do:      func(ctx context.Context, v int32) { r.guarded(ctx, v, do) },
		Weight:  func(v int32) int64 { return bodyFactor*r.Plan.Node(v).Size + bodyOverhead },
		Passive: passive,
		Limit:   r.limiter.Limit,
		Budget:  bodyBudget,
	})
}

// guarded turns a panic, which would be a defect of ours, into the object's error.
func (r *run) guarded(ctx context.Context, v int32, do func(context.Context, int32)) {
	defer func() {
		if p := recover(); p != nil {
			r.Recorder.Info(v, string(debug.Stack()))
			r.fail(v, fmt.Errorf("internal error: %v", p))
			r.settle(ctx, v, apply.Result{})
		}
	}()
	do(ctx, v)
}

// fail is the end of an object that could not be restored.
func (r *run) fail(v int32, err error) {
	r.Recorder.Error(v, err.Error())
	r.Recorder.Done(v, apply.Failed)
}

// flat is a graph of single nodes.
type flat []int32

// Vertices implements dispatch.Graph.
func (f flat) Vertices() int { return len(f) }

// Indegree implements dispatch.Graph.
func (f flat) Indegree() []int32 { return make([]int32, len(f)) }

// Successors implements dispatch.Graph.
func (f flat) Successors(int32) []int32 { return nil }

// each runs do for some nodes in parallel.
func (r *run) each(ctx context.Context, nodes []int32, do func(context.Context, int32)) error {
	return dispatch.Run(ctx, flat(nodes), dispatch.Work{
		Do:      func(ctx context.Context, v int32) { r.guarded(ctx, nodes[v], do) },
		Weight:  func(v int32) int64 { return bodyFactor*r.Plan.Node(nodes[v]).Size + bodyOverhead },
		Passive: func(int32) bool { return false },
		Limit:   r.limiter.Limit,
		Budget:  bodyBudget,
	})
}
