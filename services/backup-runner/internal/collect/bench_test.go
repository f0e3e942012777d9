package collect

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/action"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
)

// benchPage is how many objects of a benchmark make a page.
const benchPage = 500

// unmatched are actions that look at none of the benchmarks' objects: by their
// resource, their namespace, their labels, and because nothing is of concern.
func unmatched(names ...schema.GroupResource) Actions {
	concerned := screening{annotate("d.io/x", action.Selector{})}
	return Actions{Asks: names, Items: []action.BackupItem{
		annotate("a.io/x", resources("pods")), annotate("b.io/x", action.Selector{IncludedNamespaces: []string{"b"}}),
		annotate("c.io/x", action.Selector{Labels: "app=y"}), concerned,
	}}
}

// screening is an action that has nothing to say about any object.
type screening struct{ *fakeAction }

func (screening) Concerns([]byte) bool { return false }

// BenchmarkItem is what the runner does with one listed object of 2 KiB.
func BenchmarkItem(b *testing.B) {
	for name, actions := range map[string]Actions{
		"no actions": {}, "none for the resource": {Items: []action.BackupItem{annotate("a.io/x", resources("pods"))}, Asks: []schema.GroupResource{podGR}},
		"none that matches": unmatched(), "held for one": {Items: []action.BackupItem{annotate("a.io/x", action.Selector{})}},
	} {
		b.Run(name, func(b *testing.B) {
			step, size := listing(b, actions)
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				step()
			}
		})
	}
}

// Without plugins, and for objects that no action matches, a list allocates what it
// did before there were actions.
func TestActionsThatDoNotMatchCostNoAllocation(t *testing.T) {
	plain, _ := listing(t, Actions{})
	want := testing.AllocsPerRun(2000, plain)
	for name, actions := range map[string]Actions{"declared": unmatched(podGR), "any": unmatched()} {
		step, _ := listing(t, actions)
		require.InDelta(t, want, testing.AllocsPerRun(2000, step), 0.5, name)
	}
}

// listing returns what lists one more object of a unit.
func listing(b testing.TB, actions Actions) (step func(), size int64) {
	b.Helper()
	st := newSetup(b, estate(), velerov1.BackupSpec{})
	st.cfg.setDefaults()
	st.cfg.PartItems, st.cfg.PartBytes = 1<<30, 1<<40
	st.job.Actions = actions
	r := &run{Config: st.cfg, Job: st.job, facts: newFacts(st.job.Backup), again: make(chan struct{}, 1)}
	w := &worker{run: r}
	b.Cleanup(w.discard)
	unbound, err := w.bind(b.Context(), nil)
	require.NoError(b, err)
	require.Empty(b, unbound)
	res, ok := r.Catalog.Lookup(schema.GroupResource{Resource: "configmaps"})
	require.True(b, ok)
	s := w.sink(&unit{res: res})
	item, err := jsonlist.ParseObject([]byte(`{"metadata":{"name":"cm-1","namespace":"a","uid":"00000000-0000-4000-8000-000000000000",` +
		`"resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"app":"x","tier":"db"}},"data":{"k":"` + strings.Repeat("vwxyz", 400) + `"}}`))
	require.NoError(b, err)
	n := 0
	return func() {
		if err := errors.Join(s.Begin("1000"), s.Item(item)); err != nil {
			b.Fatal(err)
		}
		if n++; n%benchPage == 0 {
			require.NoError(b, s.Commit(rawlist.Page{Continue: "more"}))
		}
	}, int64(len(item.Raw))
}
