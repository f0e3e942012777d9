// Package podhook runs the hooks around the backup of Pods. A pre hook runs at most once per backup,
// however often the runner that has it changes; a post hook runs again where its end is not known, and
// whatever became of what it follows.
package podhook

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
)

// Executor runs commands in containers; podexec.Client is one.
type Executor interface {
	Run(ctx context.Context, cmd *podexec.Command) (podexec.Output, error)
}

// Intents makes it durable that hooks are about to run, and takes how they ended; history.Log is
// one.
type Intents interface {
	Hook(ctx context.Context, opens *checkpoint.HookedPod, runs *checkpoint.HookIntent) error
	EndHook(out *checkpoint.HookOutcome)
	// FlushOutcomes makes durable how hooks ended, all until now.
	FlushOutcomes(ctx context.Context) error
}

// Config is what hooks are run with. Everything is required but Confirm, RanEarly and Opened.
type Config struct {
	// Set are the hooks of the backup's spec.
	Set     *hook.Backup
	Exec    Executor
	Intents Intents
	// Past is what earlier holders recorded.
	Past *history.Hooks
	// Confirm returns an error if the backup may be another holder's by now; nil means that it
	// never is.
	Confirm func(ctx context.Context) error
	// Opened gets the Pods whose hooks begin, and loses those whose post hooks have run; nil keeps
	// none.
	Opened *Opened
	// RanEarly: post hooks of Pods that an earlier holder left between their hooks may have run before
	// what they follow.
	RanEarly bool
	Log      *slog.Logger
}

// Runner runs hooks. Safe for concurrent use.
type Runner struct {
	Config
	found atomic.Bool
}

// New returns a runner.
func New(cfg Config) *Runner { return &Runner{Config: cfg} }

// Resume adds to Opened the Pods that earlier holders left between their hooks.
func (r *Runner) Resume() {
	open := r.Past.Open()
	for i := range open {
		r.Opened.addPod(&open[i], true)
	}
}

// MayHaveHooks reports whether a Pod may have hooks, by its metadata.
func (r *Runner) MayHaveHooks(m *objmeta.Meta) bool {
	around, err := r.Set.Of(hookPod(m))
	touched := err != nil || around.Any()
	if touched {
		r.found.Store(true)
	}
	return touched
}

// Found reports whether a Pod with hooks was found.
func (r *Runner) Found() bool { return r.found.Load() }

func hookPod(m *objmeta.Meta) *hook.Pod {
	return &hook.Pod{Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations}
}
