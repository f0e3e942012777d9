package actions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// configMaps are the config maps of a backup, in namespace a.
type configMaps []string

func (c configMaps) Items(context.Context) iter.Seq2[manifest.Item, error] {
	return func(yield func(manifest.Item, error) bool) {
		for _, name := range c {
			if !yield(manifest.Item{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "a", Name: name, Preferred: true}, nil) {
				return
			}
		}
	}
}

// starter begins an operation for each object.
type starter struct{ keys, cancelled []string }

func (*starter) Name() string          { return "a.io/begins" }
func (*starter) OperationKind() string { return "AsyncRestoreItemAction" }

func (*starter) AppliesTo(context.Context) (action.Selector, error) { return action.Selector{}, nil }

func (*starter) Execute(context.Context, *action.Object, *action.Object, *action.Restore) (action.RestoreResult, error) {
	return action.RestoreResult{}, errors.New("no key")
}

func (s *starter) Start(_ context.Context, o, _ *action.Object, _ *action.Restore, key string) (action.RestoreResult, error) {
	s.keys = append(s.keys, key)
	return action.RestoreResult{Object: o, OperationID: "op"}, nil
}

func (s *starter) CancelBegun(_ context.Context, id string, _ []byte) error {
	s.cancelled = append(s.cancelled, id)
	return nil
}

func planOf(t *testing.T, names ...string) *plan.Plan {
	t.Helper()
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, nil)
	require.NoError(t, err)
	p, err := plan.Build(t.Context(), configMaps(names), plan.Config{Filter: filter})
	require.NoError(t, err)
	return p
}

// A restore with as many operations as it may have makes no call that may begin one. A call that an
// earlier holder announced is repeated with its key: its operation counts already.
func TestNoMoreOperationsAreBegunThanAllowed(t *testing.T) {
	p := planOf(t, "new", "old")
	restore, err := action.NewRestore(&velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "uid-r"}})
	require.NoError(t, err)
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	recorder := outcome.NewRecorder(outcome.NewLog(io.Discard, "r"), clock, 100, t.TempDir())
	t.Cleanup(func() { require.NoError(t, recorder.Close()) })
	recorder.SetPlan(p)
	recorder.Open()
	for i := range operation.MaxOperations {
		recorder.Call(0, outcome.Call{Action: "a.io/other", Begun: &operation.Operation{Action: "a.io/other", ID: fmt.Sprint(i)}})
	}
	nodes := map[string]int32{p.Name(0): 0, p.Name(1): 1}
	s := &starter{}
	c := NewCaller(CallerConfig{
		Recorder: recorder, Restore: restore, Plan: p, Clock: clock, Instance: "i",
		History: &outcome.History{Calls: map[int32]map[string]*outcome.Answer{nodes["old"]: {s.Name(): nil}}},
		Target:  func(node int32) apply.Target { return apply.Target{Namespace: "a", Name: p.Name(node)} },
	})
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	go func() { // makes durable what a call waits for
		for ctx.Err() == nil {
			select {
			case <-recorder.Wanted():
				_ = recorder.Flush(ctx, &files{})
			case <-ctx.Done():
			}
		}
	}()
	execute := func(name string) error {
		o := action.FromJSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"` + name + `"}}`))
		_, err := c.Execute(ctx, CallRequest{Action: s, Node: nodes[name], Object: o, Stored: o})
		return err
	}
	require.EqualError(t, execute("new"), "action a.io/begins: Execute of ConfigMap a/new: the call is not made, since it may begin an operation: "+
		"too large: the job has 10000 operations, and no more are begun")
	require.Empty(t, s.keys)
	require.NoError(t, execute("old"))
	old := operation.Resource{Resource: "configmaps", Namespace: "a", Name: "old"}
	require.Equal(t, []string{operation.Key("uid-r", s.Name(), &old)}, s.keys)
	require.Empty(t, s.cancelled)
	require.Len(t, recorder.Operations(), operation.MaxOperations+1)
}

// files are records.
type files [][]byte

func (f *files) Add(_ context.Context, data []byte) error {
	*f = append(*f, data)
	return nil
}
