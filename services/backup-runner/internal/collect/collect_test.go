package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

func TestEverythingSelectedIsStoredOnce(t *testing.T) {
	yes := true
	tests := map[string]struct {
		spec       velerov1.BackupSpec
		namespaces []string
		want       map[string]int
	}{
		"no filter": {want: map[string]int{"configmaps": 300, "widgets.example.com": 2, "namespaces": 3, "nodes": 1, "customresourcedefinitions.apiextensions.k8s.io": 2}},
		"one namespace": {namespaces: []string{"a"}, spec: velerov1.BackupSpec{IncludedNamespaces: []string{"a"}},
			want: map[string]int{"configmaps": 150, "widgets.example.com": 2, "namespaces": 1, "nodes": 0, "customresourcedefinitions.apiextensions.k8s.io": 1}},
		"two of three in one list": {namespaces: []string{"b", "empty"},
			want: map[string]int{"configmaps": 150, "widgets.example.com": 0, "namespaces": 2, "customresourcedefinitions.apiextensions.k8s.io": 0}},
		"or-selectors that overlap": {spec: velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{
			{MatchLabels: map[string]string{"app": "x"}},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"x", "y"}}}}}},
			want: map[string]int{"configmaps": 200, "widgets.example.com": 0, "namespaces": 2}},
		"old filter": {spec: velerov1.BackupSpec{IncludedResources: []string{"widgets", "nodes"}, IncludeClusterResources: &yes},
			want: map[string]int{"configmaps": 0, "widgets.example.com": 2, "nodes": 1, "namespaces": 1, "customresourcedefinitions.apiextensions.k8s.io": 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, newEstateServer(), tt.spec, tt.namespaces...)
			res, got := s.runJob(t)
			for r, n := range tt.want {
				require.Equal(t, n, got.countOf(r), r)
			}
			require.Len(t, got.items, res.Items)
			require.Equal(t, got.items, slices.Compact(slices.Clone(got.items)), "nothing twice")
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, Counts{Items: res.Items, Total: res.Items}, s.job.Progress.Read())
			left, err := os.ReadDir(s.job.Dir)
			require.NoError(t, err)
			require.Empty(t, left, "no work file is left")
		})
	}
}

func TestNamespacesThatAreNotSelectedAreMarkedExtras(t *testing.T) {
	no, path := false, func(namespace string) string { return "resources/namespaces/cluster/" + namespace + ".json" }
	seen := &fakeAction{name: "a.io/all", do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		require.NotEqual(t, "Namespace", id.Kind, "actions do not see what is not selected")
		return action.BackupResult{Object: o}, nil
	}}
	for name, spec := range map[string]velerov1.BackupSpec{
		"not among resources":  {IncludedResources: []string{"configmaps"}},
		"excluded":             {ExcludedResources: []string{"namespaces"}},
		"excluded by scope":    {ExcludedClusterScopedResources: []string{"*"}},
		"no cluster resources": {IncludeClusterResources: &no},
		"by labels":            {LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, newEstateServer(), spec, "a", "empty")
			res, _ := s.runJob(t)
			entries := s.readStored(t, res).entries
			require.True(t, entries[path("a")].Extra)
			require.NotContains(t, entries, path("empty"), "nothing of it is selected")
			require.NotContains(t, entries, path("b"))
			require.False(t, entries[configMap("cm-000")].Extra)

			acted := newSetup(t, newEstateServer(), spec, "a").addActions(seen)
			res, _ = acted.runJob(t)
			require.True(t, acted.readStored(t, res).entries[path("a")].Extra)
		})
	}
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}, "a")
	res, _ := s.runJob(t)
	entry, stored := s.readStored(t, res).entries[path("a")]
	require.True(t, stored && !entry.Extra, "it is selected")
}

func TestObjectsThatAreNotTaken(t *testing.T) {
	api := newEstateServer()
	api.Add("configmaps",
		kubetest.Object{Namespace: "a", Name: "excluded", Labels: map[string]string{selection.LabelExclude: "true"}},
		kubetest.Object{Namespace: "a", Name: "going", Deleting: true})
	api.Add("namespaces", kubetest.Object{Name: "ending", Body: map[string]any{"status": map[string]string{"phase": "Terminating"}}})
	s := newSetup(t, api, velerov1.BackupSpec{})
	_, got := s.runJob(t)
	require.Equal(t, 300, got.countOf("configmaps"))
	require.Equal(t, 3, got.countOf("namespaces"))
}

func TestErrorsCostOneKindOrObject(t *testing.T) {
	api := newEstateServer()
	api.DeadGroups = []string{"dead.example.com"}
	s := kubetest.New(append(slices.Clone(kinds), kubetest.Kind{Group: "broken.example.com", Version: "v1", Kind: "Broken",
		Resource: "brokens", Namespaced: true, Custom: true, Dead: true})...)
	s.DeadGroups = api.DeadGroups
	s.Add("namespaces", kubetest.Object{Name: "a"})
	s.Add("configmaps", kubetest.Object{Namespace: "a", Name: "fine"})
	st := newSetup(t, s, velerov1.BackupSpec{IncludedNamespaces: []string{"a", "gone"}}, "a", "gone")
	res, got := st.runJob(t)
	require.Equal(t, 1, got.countOf("configmaps"))
	errs := strings.Join(got.notesAt(joblog.Error), "\n")
	for _, want := range []string{
		"API group dead.example.com/v1 does not answer",
		"brokens.broken.example.com", "namespaces gone/gone",
	} {
		require.Contains(t, errs, want)
	}
	require.Equal(t, 3, res.Errors, errs)
}

// Events are the same objects in two groups: a backup of those of one group alone ended with none
// of them, since they counted as seen in the other.
func TestEventsByTheirOtherGroup(t *testing.T) {
	events := func(group string) kubetest.Kind {
		return kubetest.Kind{Group: group, Version: "v1", Kind: "Event", Resource: "events", Namespaced: true}
	}
	for name, want := range map[string]string{"events.events.k8s.io": "events.events.k8s.io", "events": "events", "*": "events"} {
		api := kubetest.New(append(slices.Clone(kinds), events(""), events("events.k8s.io"))...)
		for _, resource := range []string{"events", "events.events.k8s.io"} {
			api.Add(resource, kubetest.Object{Namespace: "a", Name: "e1"})
		}
		s := newSetup(t, api, velerov1.BackupSpec{IncludedResources: []string{name}})
		_, got := s.runJob(t)
		require.Equal(t, []string{"resources/" + want + "/namespaces/a/e1.json"}, got.items, name)
	}
}

// A group that does not answer costs a backup nothing that cannot select from it.
func TestADeadGroupThatTheFilterLeavesOut(t *testing.T) {
	for name, errors := range map[string]int{"configmaps": 0, "gizmos": 1} {
		api := newEstateServer()
		api.DeadGroups = []string{"dead.example.com"}
		s := newSetup(t, api, velerov1.BackupSpec{IncludedResources: []string{name, "configmaps"}})
		res, got := s.runJob(t)
		require.Equal(t, errors, res.Errors, name)
		require.Equal(t, 300, got.countOf("configmaps"))
		require.Len(t, slices.DeleteFunc(got.notesAt(joblog.Info), func(m string) bool { return !strings.Contains(m, "dead.example.com") }), 1-errors)
	}
}

func TestReferencesReachTheManifest(t *testing.T) {
	api := newEstateServer()
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Body: map[string]any{"spec": map[string]any{
		"serviceAccountName": "sa", "volumes": []any{map[string]any{"name": "v", "configMap": map[string]string{"name": "cm-000"}}}}}})
	many := make([]any, reference.Max+1)
	for i := range many {
		many[i] = map[string]any{"configMap": map[string]string{"name": fmt.Sprintf("cm-%04d", i)}}
	}
	api.Add("pods", kubetest.Object{Namespace: "b", Name: "many", Body: map[string]any{"spec": map[string]any{"volumes": many}}},
		kubetest.Object{Namespace: "b", Name: "odd", Body: map[string]any{"spec": map[string]any{"serviceAccountName": 5}}})
	s := newSetup(t, api, velerov1.BackupSpec{})
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Zero(t, res.Errors)
	require.Zero(t, res.Warnings)
	got := s.readStored(t, res)
	definition := []manifest.Reference{{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com", Relation: reference.DefinedBy}}
	const cut = "resources/pods/namespaces/b/many.json"
	require.Len(t, got.entries[cut].References, reference.Max)
	require.Contains(t, got.notesAt(joblog.Info), "pods b/many: the manifest names the first 1000 of the objects this one refers to")
	references := map[string][]manifest.Reference{}
	for path, item := range got.entries {
		if item.References != nil && path != cut {
			references[path] = item.References
		}
	}
	require.Equal(t, map[string][]manifest.Reference{
		"resources/pods/namespaces/a/p.json": {
			{Kind: "ConfigMap", Namespace: "a", Name: "cm-000", Relation: reference.Mounts},
			{Kind: "ServiceAccount", Namespace: "a", Name: "sa", Relation: reference.RunsAs},
		},
		"resources/widgets.example.com/namespaces/a/w1.json": definition,
		"resources/widgets.example.com/namespaces/a/w2.json": definition,
	}, references)
}

func TestCompactedRevision(t *testing.T) {
	api := newEstateServer()
	pages := 0
	api.Before = func(s *kubetest.Server, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			if pages++; pages == 4 || pages == 9 {
				s.Compact()
			}
		}
	}
	s := newSetup(t, api, velerov1.BackupSpec{})
	res, got := s.runJob(t)
	require.GreaterOrEqual(t, api.CountExpired(), 2)
	require.Equal(t, 300, got.countOf("configmaps"))
	require.Equal(t, 2, got.countOf("widgets.example.com"))
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	requireContiguous(t, got.records, "configmaps")
	require.GreaterOrEqual(t, len(s.job.Cut.Revisions()), 2)
}

// requireContiguous checks that the ranges of a unit cover it without a gap.
func requireContiguous(t *testing.T, records []checkpoint.Record, unit string) {
	t.Helper()
	var ranges []checkpoint.Range
	for _, rec := range records {
		for _, r := range rec.Ranges {
			if r.Unit == unit {
				ranges = append(ranges, r)
			}
		}
	}
	slices.SortFunc(ranges, func(a, b checkpoint.Range) int { return strings.Compare(a.Last, b.Last) })
	after, revisions := "", map[string]bool{}
	for _, r := range ranges {
		require.Equal(t, after, r.After)
		after = r.Last
		revisions[r.Revision] = true
	}
	require.True(t, ranges[len(ranges)-1].Done)
	require.GreaterOrEqual(t, len(revisions), 2, "the record says what is of which revision")
}

func TestFencedRunStops(t *testing.T) {
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{})
	_, err := checkpoint.Open(t.Context(), s.store, "b1", "uid-1", 2)
	require.NoError(t, err)
	_, err = Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, journal.ErrFenced)
}

func TestBrokenBucketEndsTheJob(t *testing.T) {
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{})
	broken := errors.New("bucket is broken")
	s.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "-w") {
			return broken
		}
		return nil
	})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, broken)
	left, err := os.ReadDir(s.job.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCancelledRunStops(t *testing.T) {
	lost := errors.New("claim lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	api := newEstateServer()
	api.Before = func(_ *kubetest.Server, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "continue") {
			cancel(lost)
		}
	}
	s := newSetup(t, api, velerov1.BackupSpec{})
	_, err := Run(ctx, s.cfg, s.job)
	require.ErrorIs(t, err, lost)
}
