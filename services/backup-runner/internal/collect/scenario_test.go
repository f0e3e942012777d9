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

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
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
	between func(*kubetest.Server)
	// anew: objects may be listed again, since the revision is gone.
	anew bool
	// actions returns the actions of one holder.
	actions func() []action.BackupItem
	blocks  func() []action.ItemBlock
}

func allScenarios() map[string]scenario {
	return map[string]scenario{
		"everything": {live: 3},
		"dead kinds": {live: 3, dead: true},
		"or-selectors and a missing namespace": {live: 3, namespaces: []string{"a", "b", "gone"}, spec: velerov1.BackupSpec{
			IncludedNamespaces: []string{"a", "b", "gone"}, OrLabelSelectors: []*metav1.LabelSelector{
				{MatchLabels: map[string]string{"app": "x"}},
				{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"x", "y"}}}}}}},
		"one list for each namespace": {live: 30, namespaces: []string{"a", "b"}, spec: velerov1.BackupSpec{IncludedNamespaces: []string{"a", "b"}}},
		"compaction":                  {live: 3, between: (*kubetest.Server).Compact, anew: true},
	}
}

// moreScenarios are those of other files.
var moreScenarios []func(all map[string]scenario)

// withActions adds the scenarios with actions.
func withActions(all map[string]scenario) map[string]scenario {
	all["actions"] = busyScenario()
	all["actions that go beyond the selection"] = withBusyActions(allScenarios()["or-selectors and a missing namespace"])
	for _, add := range moreScenarios {
		add(all)
	}
	return all
}

func (sc *scenario) newServer() *kubetest.Server {
	all := slices.Clone(kinds)
	if sc.actions != nil || sc.blocks != nil {
		all = append(all, kubetest.Kind{Group: "example.com", Version: "v1", Kind: "Unseen", Resource: "unseens", Namespaced: true})
	}
	if sc.dead {
		all = append(all, kubetest.Kind{Group: "broken.example.com", Version: "v1", Kind: "Broken", Resource: "brokens", Namespaced: true, Custom: true, Dead: true})
	}
	s := kubetest.New(all...)
	if sc.dead {
		s.DeadGroups = []string{"dead.example.com"}
	}
	for i := range 12 {
		s.Add("namespaces", kubetest.Object{Name: fmt.Sprintf("ns-%02d", i)})
	}
	s.Add("namespaces", kubetest.Object{Name: "a"}, kubetest.Object{Name: "b"}, kubetest.Object{Name: "empty"})
	for i := range 60 {
		s.Add("configmaps", kubetest.Object{Namespace: []string{"a", "b"}[i%2], Name: fmt.Sprintf("cm-%03d", i),
			Labels: map[string]string{"app": []string{"x", "y", "z"}[i%3]}})
	}
	for i := range 20 {
		s.Add("widgets.example.com", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("w-%02d", i), Labels: map[string]string{"app": "x"}})
		s.Add("persistentvolumes", kubetest.Object{Name: fmt.Sprintf("pv-%02d", i)})
	}
	for i := range 10 {
		s.Add("persistentvolumeclaims", kubetest.Object{Namespace: "b", Name: fmt.Sprintf("pvc-%02d", i), Labels: map[string]string{"app": "y"},
			Body: map[string]any{"spec": map[string]string{"volumeName": fmt.Sprintf("pv-%02d", i)}}})
		s.Add("pods", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("pod-%02d", i), Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{"hook.backup.velero.io/comand": "sync"}})
	}
	s.Add("customresourcedefinitions.apiextensions.k8s.io",
		kubetest.Object{Name: "widgets.example.com"}, kubetest.Object{Name: "gadgets.example.com"})
	s.Add("nodes", kubetest.Object{Name: "n1"})
	for i := range 10 {
		s.Add("unseens.example.com", kubetest.Object{Namespace: "c", Name: fmt.Sprintf("u-%d", i), Deleting: i == 4})
	}
	s.Add("namespaces", kubetest.Object{Name: "c"})
	return s
}

func (sc *scenario) setupFor(t *testing.T, workers int) (*setup, *kubetest.Server) {
	t.Helper()
	api := sc.newServer()
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

// nextOwner turns the setup into that of another holder, which has nothing but the bucket.
func (s *setup) nextOwner(t *testing.T, epoch int64) *setup {
	t.Helper()
	next := *s
	next.job.Epoch, next.job.Progress, next.job.Dir = epoch, &Progress{}, t.TempDir()
	next.job.Cut, next.job.Stop = cut.New(revisions{s.lists, cut.NewKinds(s.lists, clock.RealClock{})}, true), nil
	return &next
}

// firstOwner is the first holder of a new backup.
func (s *setup) firstOwner(t *testing.T) *setup {
	t.Helper()
	out := s.nextOwner(t, 1)
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
	if req.Revision == "" && req.Resource.Resource == "customresourcedefinitions" {
		return c.Lister.List(ctx, req, sink) // for the rules of references
	}
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

func (s *setup) readOutcome(t *testing.T, res Result) outcome {
	t.Helper()
	got := s.readStored(t, res)
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

func (sc *scenario) runUndisturbed(t *testing.T) (outcome, int) {
	t.Helper()
	s, _ := sc.setupFor(t, 1)
	lists := &counting{Lister: s.cfg.Lister}
	s.cfg.Lister = lists
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(res.Checkpoints), 8, "there are many parts")
	return s.readOutcome(t, res), int(lists.objects.Load())
}

// countRecorded sums up what the records hold.
func (s *setup) countRecorded(t *testing.T) (items int) {
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
