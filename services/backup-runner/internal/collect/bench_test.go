package collect

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// benchPage is how many objects of a benchmark make a page.
const benchPage = 500

// unmatchedActions are actions that match none of the benchmarks' objects: by their resource, their
// namespace, their labels, and because nothing is of concern.
func unmatchedActions(names ...schema.GroupResource) Actions {
	concerned := screening{tracingAction("d.io/x", action.Selector{})}
	return Actions{Asks: names, Items: []action.BackupItem{
		tracingAction("a.io/x", selectResources("pods")), tracingAction("b.io/x", action.Selector{IncludedNamespaces: []string{"b"}}),
		tracingAction("c.io/x", action.Selector{Labels: "app=y"}), concerned,
	}}
}

// screening is an action that no object concerns.
type screening struct{ *fakeAction }

func (screening) Concerns([]byte) bool { return false }

// namesOne is the benchmark whose objects name one more object each, by a rule of a user.
const namesOne = "a rule and a reference"

// BenchmarkItem is what the runner does with one listed object of 2 KiB.
func BenchmarkItem(b *testing.B) {
	for name, actions := range map[string]Actions{
		"no actions": {}, namesOne: {}, "none for the resource": {Items: []action.BackupItem{tracingAction("a.io/x", selectResources("pods"))}, Asks: []schema.GroupResource{plan.Pods}},
		"none that matches": unmatchedActions(), "held for one": {Items: []action.BackupItem{tracingAction("a.io/x", action.Selector{})}},
	} {
		b.Run(name, func(b *testing.B) {
			measureListing(b, actions, name == namesOne, func(step func() error, size int64) error {
				b.ReportAllocs()
				b.SetBytes(size)
				for b.Loop() {
					if err := step(); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// Without plugins, and for objects that no action matches, a list allocates what it did before
// there were actions.
func TestActionsThatDoNotMatchCostNoAllocation(t *testing.T) {
	allocations := func(actions Actions) (n float64) {
		measureListing(t, actions, false, func(step func() error, _ int64) (err error) {
			n = testing.AllocsPerRun(2000, func() { err = errors.Join(err, step()) })
			return err
		})
		return n
	}
	want := allocations(Actions{})
	for name, actions := range map[string]Actions{"declared": unmatchedActions(plan.Pods), "any": unmatchedActions()} {
		require.InDelta(t, want, allocations(actions), 0.5, name)
	}
}

// errListed ends a run after its list was measured.
var errListed = errors.New("the list was measured")

// measureListing runs a job whose list of config maps calls measure; step lists one more object. With names a
// rule finds a reference in each.
func measureListing(t testing.TB, actions Actions, names bool, measure func(step func() error, size int64) error) {
	t.Helper()
	st := newSetup(t, newEstateServer(), velerov1.BackupSpec{IncludedResources: []string{"configmaps"}})
	st.cfg.PartItems, st.cfg.PartBytes, st.cfg.Workers = 1<<30, 1<<40, 1
	st.job.Actions, st.job.Cut = actions, cut.New(nil, false)
	item, err := jsonlist.ParseObject([]byte(`{"metadata":{"name":"cm-1","namespace":"a","uid":"00000000-0000-4000-8000-000000000000",` +
		`"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"x","tier":"db"}},"data":{"ref":"cm-2","k":"` + strings.Repeat("vwxyz", 400) + `"}}`))
	require.NoError(t, err)
	rules, err := jsonlist.ParseObject([]byte(`{"metadata":{"name":"holdfast-references","namespace":"velero"},"data":{"a":"{kind: ConfigMap, field: data.ref, to: ConfigMap}"}}`))
	require.NoError(t, err)
	var measured error
	st.cfg.Lister = listerFunc(func(_ context.Context, req rawlist.Request, sink rawlist.Sink) error {
		if req.Fields != "" && names {
			return sink.Item(rules)
		} else if req.Fields != "" {
			return nil
		}
		n := 0
		measured = measure(func() error {
			if err := errors.Join(sink.Begin("1000"), sink.Item(item)); err != nil {
				return err
			}
			if n++; n%benchPage == 0 {
				return sink.Commit(rawlist.Page{Continue: "more"})
			}
			return nil
		}, int64(len(item.Raw)))
		return &rawlist.SinkError{Err: errListed}
	})
	_, err = Run(t.Context(), st.cfg, st.job)
	require.ErrorIs(t, err, errListed)
	require.NoError(t, measured)
}
