package job_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// A stop, the loss of the claim and a request to cancel end a call that hangs; the next runner ends
// the restore as if nothing had happened.
func TestTakeoverAndCancelWhilePluginsWork(t *testing.T) {
	for name, end := range map[string]func(b *bench, cancel func()){
		"stopped":   func(_ *bench, cancel func()) { cancel() },
		"fenced":    func(b *bench, _ func()) { b.claims.LoseClaim() },
		"cancelled": func(b *bench, _ func()) { b.requestCancel(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 2)
			b.createRestore(t, true)
			hanging := &stuck{called: make(chan struct{})}
			b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
				return job.ActionSet{Items: []action.RestoreItem{hanging}}
			}
			b.runner = newRunner(b.config)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { <-hanging.called; end(b, cancel) }()
			err := b.runner.Run(ctx, "r", "uid-r")
			if name == "stopped" {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.NoError(t, err)
			}
			if name == "cancelled" {
				require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
				return
			}
			require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
			next := b.config
			next.Claims = &jobtest.Holder{Name: "next"}
			next.Actions = nil
			require.NoError(t, newRunner(next).Run(t.Context(), "r", "uid-r"))
			require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
			require.Equal(t, 2, strings.Count(b.readGzip(t, layout.RestoreResourceList("r")), "(created)"))
		})
	}
}

// stuck is an action that hangs with the first object it gets.
type stuck struct {
	once   sync.Once
	called chan struct{}
}

func (*stuck) Name() string { return "a.io/stuck" }

func (*stuck) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: []string{"configmaps"}}, nil
}

func (s *stuck) Execute(ctx context.Context, o, _ *action.Object, _ *action.Restore) (action.RestoreResult, error) {
	s.once.Do(func() { close(s.called) })
	<-ctx.Done()
	return action.RestoreResult{Object: o}, ctx.Err()
}

func TestActionsThatCannotBeAskedAreAnErrorOfTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 2)
	b.createRestore(t, true)
	b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
		return job.ActionSet{Items: []action.RestoreItem{mute{&stuck{}}}}
	}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase)
	require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), "objects are restored without an action: plugin a.io/mute: AppliesTo: gone")
	require.Len(t, b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"), 2)
}

// A plugin that cannot be asked what it registers is a warning, and the restore is Completed
// without what it would have changed.
func TestWhatARestoreDoesWithoutIsAnErrorOnceWhoeverHoldsIt(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	prepareInterrupted(t, b, cancel)
	without := func(missing ...string) func(context.Context, func(joblog.Entry)) job.ActionSet {
		return func(context.Context, func(joblog.Entry)) job.ActionSet { return job.ActionSet{Errors: missing} }
	}
	first := b.config
	first.Actions = without("plugin x cannot be asked")
	var leave func()
	first.REST, leave = b.cluster.OpenFaultyDoor(nil)
	require.ErrorIs(t, newRunner(first).Run(ctx, "r", "uid-r"), context.Canceled)
	leave()
	b.cluster.Fail(nil)
	next := b.config
	next.Claims, next.Actions = &jobtest.Holder{Name: "next"}, without("plugin x cannot be asked", "plugin y cannot be asked")
	require.NoError(t, newRunner(next).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, b.getRestore(t).Status.Phase)
	require.Equal(t, 2, b.getRestore(t).Status.Errors)
	results := b.readGzip(t, layout.RestoreResults("r"))
	require.Equal(t, 1, strings.Count(results, "plugin x cannot be asked"))
	require.Equal(t, 1, strings.Count(results, "plugin y cannot be asked"))
}

// mute is an action whose AppliesTo fails.
type mute struct{ *stuck }

func (mute) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{}, errors.New("plugin a.io/mute: AppliesTo: gone")
}
