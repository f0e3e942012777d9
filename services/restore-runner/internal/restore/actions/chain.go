package actions

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

type boundAction = action.Bound[action.RestoreItem]

// ChainsConfig is what objects go through their actions with.
type ChainsConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	Loader   *object.Loader
	Finisher *flight.Finisher
	Existing *object.LiveReader
	Names    *object.Names
	Catalog  *object.Catalog
	Pending  *PendingStore
	Caller   *Caller
	Clock    clock.WithTicker
	// ReadyTimeout is how long an object waits until its additional items are ready, unless the action
	// sets it.
	ReadyTimeout time.Duration
	// DryRun has only those actions be called that are safe in a dry run.
	DryRun bool
}

// Chains are the actions of a restore, by the kinds of objects that they apply to. Safe for
// concurrent use.
type Chains struct {
	ChainsConfig
	byKind  map[*plan.Kind][]boundAction // nil without actions
	targets map[string]bool              // the namespaces that are restored to
	prober  *Prober                      // nil until Start, and without actions
}

// NewChains finds the actions of each kind.
func NewChains(cfg ChainsConfig, actions []boundAction) *Chains {
	c := &Chains{ChainsConfig: cfg}
	if len(actions) == 0 {
		return c
	}
	c.byKind, c.targets = map[*plan.Kind][]boundAction{}, map[string]bool{}
	for _, n := range cfg.Plan.Namespaces() {
		c.targets[n.Target] = true
	}
	kinds := cfg.Plan.Kinds()
	for i := range kinds {
		for _, b := range actions {
			if b.Resource(kinds[i].GroupResource()) {
				c.byKind[&kinds[i]] = append(c.byKind[&kinds[i]], b)
			}
		}
	}
	return c
}

// Follows reports that actions apply to objects of a kind, and may change them.
func (c *Chains) Follows(kind *plan.Kind) bool { return c.byKind[kind] != nil }

// Start lets objects wait from now on until their additional items are ready; the nodes of those
// that need not wait any longer are sent to woken. It ends when the returned function is called.
func (c *Chains) Start(ctx context.Context, woken chan int32) (stop func()) {
	if c.byKind == nil {
		return func() {}
	}
	c.prober = NewProber(c.Clock, c.Caller.Restore, c.Caller.IsProcessCrash, woken)
	return c.prober.Start(ctx)
}
