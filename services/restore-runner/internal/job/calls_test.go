package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// starter is an action whose calls may begin operations, outside every process.
type starter struct {
	mu    sync.Mutex
	calls map[string]int
}

var _ action.RestoreOperations = &starter{}

func (*starter) Name() string { return "a.io/begins" }

func (*starter) AppliesTo(context.Context) (action.Selector, error) {
	return action.Selector{IncludedResources: []string{"configmaps"}}, nil
}

func (s *starter) Execute(_ context.Context, o, _ *action.Object, _ *action.Restore) (action.RestoreResult, error) {
	id, err := o.Identity()
	if err != nil {
		return action.RestoreResult{}, err
	}
	s.mu.Lock()
	s.calls[id.String()]++
	s.mu.Unlock()
	switch id.Name {
	case "orphan":
		return action.RestoreResult{}, errors.New("no such volume")
	case "one":
		return action.RestoreResult{Skip: true}, nil
	case "two":
		return action.RestoreResult{Object: o, OperationID: "op-2"}, nil
	case "c":
		return action.RestoreResult{Object: o}, nil
	}
	u, err := o.Copy()
	if err != nil {
		return action.RestoreResult{}, err
	}
	u.SetAnnotations(map[string]string{"begun": "<" + id.Name + ">"})
	return action.RestoreResult{Object: action.FromContent(u.Object)}, nil
}

func (*starter) OperationKind() string { return "RestoreItemActionV2" }

func (s *starter) addTo(b *bench) {
	b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
		return job.ActionSet{Items: []action.RestoreItem{s}}
	}
}

const unclear = "the runner ended around this call; it is not made again, since it may have begun an operation"

// Promise P3: Execute of a restore item action of version 2 runs again after a takeover and begins
// its operation twice. One that was under way when its holder died costs its object an error that
// names it; any other ends as in an undisturbed run.
func TestNoCallThatMayBeginAnOperationIsMadeTwice(t *testing.T) {
	t.Parallel()
	undisturbed := newScene(t, "")
	(&starter{calls: map[string]int{}}).addTo(undisturbed)
	whole := undisturbed.runLife(t, 0, false)
	require.True(t, undisturbed.moveOn(t, ""))
	undisturbed.runLife(t, 0, false)
	want := undisturbed.readOutcome(t)
	require.Contains(t, want.Results, "no such volume")
	require.Contains(t, want.Operations, "op-2")
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint("after the write: ", after), func(t *testing.T) {
			t.Parallel()
			for k := 1; ; k += jobtest.WriteStride() {
				b := newScene(t, velerov1.PolicyType(""))
				calls := &starter{calls: map[string]int{}}
				calls.addTo(b)
				first := b.runLife(t, k, after)
				if !first.isGone() {
					require.Greater(t, k, whole.writes/2)
					break
				}
				b.finishRestore(t, "")
				for id, n := range calls.calls {
					require.Equal(t, 1, n, "%s, death at write %d: %s", id, k, first.what)
				}
				got := b.readOutcome(t)
				lost := strings.Count(got.Results, unclear)
				if lost == 0 {
					require.Equal(t, want.Objects, got.Objects, "death at write %d: %s", k, first.what)
					require.Equal(t, want.List, got.List, "death at write %d: %s", k, first.what)
					require.Equal(t, want.Results, got.Results, "death at write %d: %s", k, first.what)
					require.Equal(t, want.Operations, got.Operations, "death at write %d: %s", k, first.what)
					require.Equal(t, []int{want.Warnings, want.Errors}, []int{got.Warnings, got.Errors}, "death at write %d: %s", k, first.what)
					continue
				}
				require.Contains(t, got.Results, "action a.io/begins: Execute of ConfigMap ")
				require.Equal(t, lost, strings.Count(strings.Join(got.Log, "\n"), unclear))
			}
		})
	}
}

// A runner that is killed right after it has announced a call: the item is named, whether the call
// was made or not.
func TestACallThatWasAnnouncedIsNotMadeByTheNextRunner(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 3)
	b.createRestore(t, true)
	hanging := &hung{starter: starter{calls: map[string]int{}}, called: make(chan struct{})}
	b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
		return job.ActionSet{Items: []action.RestoreItem{hanging}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-hanging.called; cancel() }()
	require.ErrorIs(t, newRunner(b.config).Run(ctx, "r", "uid-r"), context.Canceled)
	hanging.mu.Lock()
	begun := make([]string, 0, len(hanging.calls))
	for id := range hanging.calls {
		begun = append(begun, id)
	}
	hanging.mu.Unlock()
	require.NotEmpty(t, begun)

	next := b.config
	next.Claims = &jobtest.Holder{Name: "next"}
	rest := &starter{calls: map[string]int{}}
	next.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
		return job.ActionSet{Items: []action.RestoreItem{rest}}
	}
	require.NoError(t, newRunner(next).Run(t.Context(), "r", "uid-r"))
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
	require.Equal(t, len(begun), r.Status.Errors)
	results := b.readGzip(t, layout.RestoreResults("r"))
	for _, id := range begun {
		require.Zero(t, rest.calls[id], "it may have begun an operation")
		require.Contains(t, results, "action a.io/begins: Execute of "+id+": "+unclear)
	}
	require.Len(t, rest.calls, 3-len(begun))
	require.False(t, slices.Contains(begun, ""))
}

// hung never answers.
type hung struct {
	starter
	once   sync.Once
	called chan struct{}
}

func (h *hung) Execute(ctx context.Context, o, _ *action.Object, _ *action.Restore) (action.RestoreResult, error) {
	id, err := o.Identity()
	if err != nil {
		return action.RestoreResult{}, err
	}
	h.mu.Lock()
	h.calls[id.String()]++
	h.mu.Unlock()
	h.once.Do(func() { close(h.called) })
	<-ctx.Done()
	return action.RestoreResult{}, ctx.Err()
}
