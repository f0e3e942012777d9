package pausing

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Pauser pauses the objects of a restore. Safe for concurrent use.
type Pauser struct {
	Rules      plan.PauseRules
	Recorder   *outcome.Recorder
	Existing   *object.LiveReader
	Namespaces *object.TargetNamespaces
}

// Pause marks an object whose operator lets it be paused, once it is durable how the mark is
// brought back. One that is in the cluster from before is left to its operator.
func (p *Pauser) Pause(ctx context.Context, o *object.Object) error {
	rule := p.Rules.For(o.Kind.GVK.GroupKind())
	if rule == nil || o.Exists {
		return nil
	}
	if !p.Namespaces.Created(o.Target.Namespace) {
		live, err := p.Existing.Get(ctx, o.Target)
		if err != nil {
			return err
		}
		if live != nil && !p.Existing.Manager.IsCreatedByRestore(object.MapAt(live, "metadata")) {
			return nil
		}
	}
	back, paused := rule.Pause(o.Body)
	if !paused {
		return nil
	}
	p.Recorder.Pause(&outcome.Paused{Target: o.Target, Back: back})
	if err := p.Recorder.Sync(ctx); err != nil {
		return err
	}
	failpoint.Hit("restore-runner/pause-recorded")
	return nil
}
