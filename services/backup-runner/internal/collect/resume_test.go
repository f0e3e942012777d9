package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/action"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/journal"
	"github.com/holdfast-io/holdfast/pkg/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/pkg/rotate"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/apifake"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// scenario is a backup to be killed in the middle.
type scenario struct {
	spec       velerov1.BackupSpec
	namespaces []string
	live       int
	dead       bool // one kind cannot be listed, one group cannot be discovered
	// between happens after the death, before the takeover.
	between func(*apifake.Server)
	// anew: objects may be listed again, since the revision is gone.
	anew bool
	// actions returns the actions of one holder.
	actions func() []action.BackupItem
	blocks  func() []action.ItemBlock
}

func scenarios() map[string]scenario {
	return map[string]scenario{
		"everything": {live: 3},
		"dead kinds": {live: 3, dead: true},
		"or-selectors and a missing namespace": {live: 3, namespaces: []string{"a", "b", "gone"}, spec: velerov1.BackupSpec{
			IncludedNamespaces: []string{"a", "b", "gone"}, OrLabelSelectors: []*metav1.LabelSelector{
				{MatchLabels: map[string]string{"app": "x"}},
				{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"x", "y"}}}}}}},
		"one list for each namespace": {live: 30, namespaces: []string{"a", "b"}, spec: velerov1.BackupSpec{IncludedNamespaces: []string{"a", "b"}}},
		"compaction":                  {live: 3, between: (*apifake.Server).Compact, anew: true},
	}
}

// moreScenarios are those of other files.
var moreScenarios []func(all map[string]scenario)

// withActions adds the scenarios with actions.
func withActions(all map[string]scenario) map[string]scenario {
	all["actions"] = busyScenario()
	all["actions that go beyond the selection"] = withBusyActions(scenarios()["or-selectors and a missing namespace"])
	for _, add := range moreScenarios {
		add(all)
	}
	return all
}

func (sc *scenario) server() *apifake.Server {
	all := slices.Clone(kinds)
	if sc.actions != nil || sc.blocks != nil {
		all = append(all, apifake.Kind{Group: "example.com", Version: "v1", Kind: "Unseen", Resource: "unseens", Namespaced: true})
	}
	if sc.dead {
		all = append(all, apifake.Kind{Group: "broken.example.com", Version: "v1", Kind: "Broken", Resource: "brokens", Namespaced: true, Custom: true, Dead: true})
	}
	s := apifake.New(all...)
	if sc.dead {
		s.DeadGroups = []string{"dead.example.com"}
	}
	for i := range 12 {
		s.Add("namespaces", apifake.Object{Name: fmt.Sprintf("ns-%02d", i)})
	}
	s.Add("namespaces", apifake.Object{Name: "a"}, apifake.Object{Name: "b"}, apifake.Object{Name: "empty"})
	for i := range 60 {
		s.Add("configmaps", apifake.Object{Namespace: []string{"a", "b"}[i%2], Name: fmt.Sprintf("cm-%03d", i),
			Labels: map[string]string{"app": []string{"x", "y", "z"}[i%3]}})
	}
	for i := range 20 {
		s.Add("widgets.example.com", apifake.Object{Namespace: "a", Name: fmt.Sprintf("w-%02d", i), Labels: map[string]string{"app": "x"}})
		s.Add("persistentvolumes", apifake.Object{Name: fmt.Sprintf("pv-%02d", i)})
	}
	for i := range 10 {
		s.Add("persistentvolumeclaims", apifake.Object{Namespace: "b", Name: fmt.Sprintf("pvc-%02d", i), Labels: map[string]string{"app": "y"},
			Body: map[string]any{"spec": map[string]string{"volumeName": fmt.Sprintf("pv-%02d", i)}}})
		s.Add("pods", apifake.Object{Namespace: "a", Name: fmt.Sprintf("pod-%02d", i), Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{"backup.velero.io/backup-volumes": "v"}})
	}
	s.Add("customresourcedefinitions.apiextensions.k8s.io",
		apifake.Object{Name: "widgets.example.com"}, apifake.Object{Name: "gadgets.example.com"})
	s.Add("nodes", apifake.Object{Name: "n1"})
	for i := range 10 {
		s.Add("unseens.example.com", apifake.Object{Namespace: "c", Name: fmt.Sprintf("u-%d", i), Deleting: i == 4})
	}
	s.Add("namespaces", apifake.Object{Name: "c"})
	return s
}

func (sc *scenario) setup(t *testing.T, workers int) (*setup, *apifake.Server) {
	t.Helper()
	api := sc.server()
	s := newSetup(t, api, sc.spec, sc.namespaces...)
	s.cfg.Workers, s.cfg.BlockWorkers, s.cfg.PartItems = workers, workers, 8
	s.job.LiveNamespaces = func(context.Context) (int, error) { return sc.live, nil }
	if sc.actions != nil {
		s.job.Actions.Items = sc.actions()
	}
	if sc.blocks != nil {
		s.job.Actions.Blocks = sc.blocks()
	}
	return s, api
}

// holder makes the setup that of another holder, which knows nothing but what is
// in the bucket.
func (s *setup) holder(t *testing.T, epoch int64) *setup {
	t.Helper()
	next := *s
	next.job.Epoch, next.job.Progress, next.job.Dir = epoch, &Progress{}, t.TempDir()
	next.job.Cut, next.job.Stop = cut.New(revisions{s.lists, cut.NewKinds(s.lists, clock.RealClock{})}, true), nil
	return &next
}

// first is the first holder of a new backup.
func (s *setup) first(t *testing.T) *setup {
	t.Helper()
	out := s.holder(t, 1)
	out.store = memstore.New()
	out.job.Store = out.store
	return out
}

// counting counts the objects that were listed.
type counting struct {
	Lister
	objects atomic.Int64
}

func (c *counting) List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
	return c.Lister.List(ctx, req, counted{sink, c})
}

type counted struct {
	rawlist.Sink
	by *counting
}

func (c counted) Item(item jsonlist.Item) error {
	c.by.objects.Add(1)
	return c.Sink.Item(item)
}

var errDead = errors.New("the process is dead")

// dieAt makes the bucket fail from the n-th write on, and reports whether it did.
func dieAt(store *memstore.Store, n int) (died func() bool) {
	var mu sync.Mutex
	writes := 0
	store.Inject(func(op memstore.Op, _ string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == memstore.OpCreate {
			writes++
		}
		if writes >= n {
			return errDead
		}
		return nil
	})
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return writes >= n
	}
}

// outcome is what a finished collection amounts to.
type outcome struct {
	Items, Notes, Volumes []string
	Result                Result
	Counts                Counts
}

func (s *setup) outcome(t *testing.T, res Result) outcome {
	t.Helper()
	got := s.read(t, res)
	requireCovered(t, got.records)
	out := outcome{Items: got.items, Result: res, Counts: s.job.Progress.Read()}
	out.Result.Checkpoints = nil
	for _, e := range got.notes {
		if !strings.HasPrefix(e.Message, "The server no longer has revision") {
			out.Notes = append(out.Notes, fmt.Sprintf("%s %s %s/%s: %s: %s", e.Level, e.Resource, e.Namespace, e.Name, e.Message, e.Err))
		}
	}
	for i := range got.records {
		for _, v := range got.records[i].Volumes {
			out.Volumes = append(out.Volumes, v.PVCName+" "+v.PVName)
		}
	}
	slices.Sort(out.Notes)
	slices.Sort(out.Volumes)
	require.Equal(t, out.Items, slices.Compact(slices.Clone(out.Items)), "nothing twice")
	return out
}

// requireCovered checks that the ranges of each unit follow one another to its end.
func requireCovered(t *testing.T, records []checkpoint.Record) {
	t.Helper()
	last := map[string]checkpoint.Range{}
	for i := range records {
		for _, r := range records[i].Ranges {
			require.False(t, last[r.Unit].Done, "%s goes on behind its end", r.Unit)
			require.Equal(t, last[r.Unit].Last, r.After, r.Unit)
			last[r.Unit] = r
		}
	}
	for id, r := range last {
		require.True(t, r.Done, id)
	}
}

func (sc *scenario) undisturbed(t *testing.T) (outcome, int) {
	t.Helper()
	s, _ := sc.setup(t, 1)
	lists := &counting{Lister: s.cfg.Lister}
	s.cfg.Lister = lists
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(res.Checkpoints), 8, "there are many parts")
	return s.outcome(t, res), int(lists.objects.Load())
}

// recorded sums up what the records hold.
func (s *setup) recorded(t *testing.T) (items int) {
	t.Helper()
	for _, key := range s.store.Keys() {
		data, _ := s.store.Bytes(key)
		if !strings.Contains(key, "/checkpoint-") || data[0] != '{' {
			continue
		}
		err := checkpoint.Each(t.Context(), s.store, "b1", "uid-1", []string{key}, func(_ string, rec *checkpoint.Record) error {
			items += rec.Part.Items
			return nil
		})
		require.NoError(t, err)
	}
	return items
}

// A run that dies at any write to the bucket is taken over, and the outcome is
// that of the undisturbed run.
func TestDeathAtEachWrite(t *testing.T) {
	t.Parallel()
	for name, sc := range withActions(scenarios()) {
		want, total := sc.undisturbed(t)
		for _, run := range []struct{ workers, shares int }{{1, 9}, {4, 18}} {
			t.Run(fmt.Sprintf("%s, %d workers", name, run.workers), func(t *testing.T) {
				t.Parallel()
				base, api := sc.setup(t, run.workers)
				for n := 1; ; n++ {
					if !rotate.Today(n, run.shares) {
						continue
					}
					s := base.first(t)
					died := dieAt(s.store, n)
					res, err := Run(t.Context(), s.cfg, s.job)
					if !died() {
						require.NoError(t, err)
						require.Len(t, s.outcome(t, res).Items, len(want.Items))
						require.Greater(t, n, 20, "the run was cut at many points")
						return
					}
					require.ErrorIs(t, err, errDead)
					s.store.Inject(nil)
					if sc.between != nil {
						sc.between(api)
					}
					durable := s.recorded(t)
					next := s.holder(t, 2)
					if n > 2 {
						next.job.LiveNamespaces = func(context.Context) (int, error) { return 0, errors.New("decided before") }
					}
					lists := &counting{Lister: s.cfg.Lister}
					next.cfg.Lister = lists
					res, err = Run(t.Context(), next.cfg, next.job)
					require.NoError(t, err, "killed at write %d", n)
					got := next.outcome(t, res)
					if sc.between != nil { // the revision in the log is another one
						require.Len(t, got.Notes, len(want.Notes))
						got.Notes = want.Notes
					}
					require.Equal(t, want, got, "killed at write %d", n)
					if !sc.anew {
						require.LessOrEqual(t, int(lists.objects.Load()), total-durable, "killed at write %d", n)
					}
				}
			})
		}
	}
}

func TestTwoDeathsInARow(t *testing.T) {
	t.Parallel()
	sc := scenarios()["dead kinds"]
	sc.twoDeaths(t, []int{3, 7, 11, 15, 19, 23, 27, 31, 35, 39}, []int{1, 6, 11, 16, 21, 26})
}

// twoDeaths ends a first holder at each of some writes, and its successor at each
// of others: the third one's outcome is that of the undisturbed run.
func (sc *scenario) twoDeaths(t *testing.T, first, second []int) {
	t.Helper()
	want, _ := sc.undisturbed(t)
	base, _ := sc.setup(t, 4)
	for _, n := range first {
		for _, m := range second {
			s := base.first(t)
			dieAt(s.store, n)
			_, err := Run(t.Context(), s.cfg, s.job)
			require.ErrorIs(t, err, errDead)
			next := s.holder(t, 2)
			died := dieAt(s.store, m)
			res, err := Run(t.Context(), next.cfg, next.job)
			if died() {
				require.ErrorIs(t, err, errDead)
				s.store.Inject(nil)
				next = next.holder(t, 3)
				res, err = Run(t.Context(), next.cfg, next.job)
			}
			require.NoError(t, err)
			require.Equal(t, want, next.outcome(t, res), "killed at writes %d and %d", n, m)
		}
	}
}

// A holder that sleeps through its takeover in the middle of a write wakes up
// beside the new one, or behind it.
func TestZombie(t *testing.T) {
	t.Parallel()
	sc := scenarios()["everything"]
	want, _ := sc.undisturbed(t)
	for _, workers := range []int{1, 4} {
		base, _ := sc.setup(t, workers)
		for n := 1; n < 40; n += 3 {
			s := base.first(t)
			asleep, wake := make(chan struct{}), make(chan struct{})
			var mu sync.Mutex
			writes := 0
			s.store.Inject(func(op memstore.Op, _ string) error {
				mu.Lock()
				if op == memstore.OpCreate {
					writes++
				}
				mine := op == memstore.OpCreate && writes == n
				mu.Unlock()
				if mine {
					close(asleep)
					<-wake
				}
				return nil
			})
			woken := make(chan error, 1)
			go func() {
				_, err := Run(t.Context(), s.cfg, s.job)
				woken <- err
			}()
			<-asleep
			next := s.holder(t, 2)
			if n%2 == 1 {
				next.store.Inject(nil) // both go on at once
				close(wake)
			}
			res, err := Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			if n%2 == 0 {
				close(wake)
			}
			if err := <-woken; n%2 == 0 {
				require.ErrorIs(t, err, journal.ErrFenced, "asleep at write %d", n)
			}
			require.Equal(t, want, next.outcome(t, res), "asleep at write %d", n)
		}
	}
}

// A holder that learns of its successor when it records a part takes the part back:
// the successor's sweep may be over.
func TestAFencedHolderLeavesNoPart(t *testing.T) {
	sc := scenarios()["everything"]
	s, _ := sc.setup(t, 1)
	taken := false
	s.store.Inject(func(op memstore.Op, key string) error {
		if !taken && op == memstore.OpCreate && strings.Contains(key, "/1-w0-") {
			taken = true
			next := s.holder(t, 2)
			_, err := Run(t.Context(), next.cfg, next.job)
			require.NoError(t, err)
			for _, k := range s.store.Keys() {
				if !strings.Contains(k, "checkpoint") {
					require.NoError(t, s.store.Delete(t.Context(), k))
				}
			}
		}
		return nil
	})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, journal.ErrFenced)
	require.True(t, taken)
	for _, k := range s.store.Keys() {
		require.Contains(t, k, "checkpoint")
	}
}
