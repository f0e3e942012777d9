package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// additionalAction returns an action that names additional items.
func additionalAction(name string, s action.Selector, must bool, items func(id action.Identity) []string) *fakeAction {
	return &fakeAction{name: name, selector: s, do: func(_ context.Context, id action.Identity, o *action.Object) (r action.BackupResult, err error) {
		for _, text := range items(id) {
			r.Additional = append(r.Additional, itemOf(text))
		}
		if must && len(r.Additional) > 0 {
			changed, err := annotatedResult(o, velerov1.AnnotationMustIncludeAdditional, "true")
			r.Object = changed.Object
			return r, err
		}
		return r, nil
	}}
}

// itemOf reads "resource.group namespace/name".
func itemOf(text string) action.Item {
	resource, object, _ := strings.Cut(text, " ")
	item := action.Item{GroupResource: schema.ParseGroupResource(resource), Name: object}
	if ns, name, ok := strings.Cut(object, "/"); ok {
		item.Namespace, item.Name = ns, name
	}
	return item
}

// itemsForObject returns items for one object.
func itemsForObject(name string, items ...string) func(action.Identity) []string {
	return func(id action.Identity) []string {
		if id.Name == name {
			return items
		}
		return nil
	}
}

// named records the requests for single objects.
type named struct {
	mu   sync.Mutex
	seen []string
}

func (n *named) watchServer(api *kubetest.Server) *named {
	api.Before = func(_ *kubetest.Server, r *http.Request) {
		f := r.URL.Query().Get("fieldSelector")
		rules := r.URL.Query().Get("resourceVersion") == "" && (strings.HasSuffix(f, reference.ConfigMap) || strings.HasSuffix(r.URL.Path, "customresourcedefinitions"))
		if f != "" && !rules {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.seen = append(n.seen, fmt.Sprintf("%s %s @%s", r.URL.Path, strings.TrimPrefix(f, "metadata.name="), r.URL.Query().Get("resourceVersion")))
		}
	}
	return n
}

func (s *setup) runJob(t *testing.T) (Result, stored) {
	t.Helper()
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	got := s.readStored(t, res)
	require.Equal(t, got.items, slices.Compact(slices.Clone(got.items)), "nothing twice")
	counts := s.job.Progress.Read()
	require.Equal(t, counts.Items, counts.Total, "nothing waits")
	require.Equal(t, res.Items, counts.Items)
	require.Equal(t, res.Errors, counts.Errors)
	require.Equal(t, res.Warnings, counts.Warnings)
	return res, got
}

func TestAdditionalItemsOfTheSelectionAreNotReadAgain(t *testing.T) {
	api := newEstateServer()
	requests := (&named{}).watchServer(api)
	trace := tracingAction("b.io/trace", selectResources("widgets.example.com"))
	s := newSetup(t, api, velerov1.BackupSpec{}).addActions(
		additionalAction("a.io/x", selectResources("nodes"), false, itemsForObject("n1", "configmaps a/cm-000", "configmaps b/cm-001", "widgets.example.com a/w2", "widget a/w1", "nodes n1")), trace)
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Zero(t, res.Warnings)
	require.Empty(t, requests.seen)
	require.Equal(t, 2, trace.calledOnceEach(t), "once, whoever comes first")
	require.Equal(t, 300, got.countOf("configmaps"))
}

func TestAdditionalItemsOutsideTheSelectionComeFromTheCut(t *testing.T) {
	api := newEstateServer()
	api.Add("persistentvolumes", kubetest.Object{Name: "pv-1"})
	requests := (&named{}).watchServer(api)
	trace := tracingAction("b.io/trace", selectResources("persistentvolumes", "configmaps"))
	// Pods are selected by label; what belongs to them is not labelled, or cluster-scoped.
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: map[string]string{"app": "only"}},
		kubetest.Object{Namespace: "a", Name: "q", Labels: map[string]string{"app": "only"}})
	s := newSetup(t, api, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "only"}}}, "a").addActions(
		additionalAction("a.io/x", selectResources("pods"), false, func(action.Identity) []string {
			return []string{"configmaps a/cm-000", "persistentvolumes ignored/pv-1", "widgets.example.com a/w1"}
		}), trace)
	s.cfg.BlockWorkers = 4
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	slices.Sort(requests.seen)
	require.Equal(t, []string{
		"/api/v1/namespaces/a/configmaps cm-000 @1000",
		"/api/v1/persistentvolumes pv-1 @1000",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions widgets.example.com @1000",
		"/apis/example.com/v1/namespaces/a/widgets w1 @1000",
	}, requests.seen, "each is read once, at the cut")
	require.Equal(t, []string{
		"resources/configmaps/namespaces/a/cm-000.json",
		"resources/customresourcedefinitions.apiextensions.k8s.io/cluster/widgets.example.com.json",
		"resources/namespaces/cluster/a.json",
		"resources/persistentvolumes/cluster/pv-1.json",
		"resources/pods/namespaces/a/p.json", "resources/pods/namespaces/a/q.json",
		"resources/widgets.example.com/namespaces/a/w1.json",
	}, got.items, "a definition comes with what needs it")
	entries := got.entries
	require.False(t, entries["resources/persistentvolumes/cluster/pv-1.json"].Live)
	require.Equal(t, []string{"b.io/trace"}, entries["resources/persistentvolumes/cluster/pv-1.json"].Actions)
	require.Equal(t, 2, trace.calledOnceEach(t), "additional items have their own actions")
}

func TestAnAdditionalItemThatTheCutHasLostIsMarked(t *testing.T) {
	api := newEstateServer()
	var once sync.Once
	yes := true
	s := newSetup(t, api, velerov1.BackupSpec{IncludedResources: []string{"configmaps"}, IncludeClusterResources: &yes}, "a").addActions(
		&fakeAction{name: "a.io/x", selector: selectResources("configmaps"), do: func(_ context.Context, id action.Identity, _ *action.Object) (r action.BackupResult, err error) {
			once.Do(api.Compact)
			if id.Name == "cm-000" {
				r.Additional = []action.Item{itemOf("nodes n1")}
			}
			return r, nil
		}})
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	entries := s.readStored(t, res).entries
	node := entries["resources/nodes/cluster/n1.json"]
	require.True(t, node.Live)
	require.Equal(t, "1001", node.Cut)
	require.Empty(t, entries[configMap("cm-000")].Cut)
}

func TestFiltersHoldForAdditionalItems(t *testing.T) {
	for name, tt := range map[string]struct {
		must bool
		want []string // beside the node
	}{
		"filters": {false, []string{"resources/persistentvolumes/cluster/pv-1.json"}},
		"must include": {true, []string{
			"resources/configmaps/namespaces/b/cm-001.json", "resources/customresourcedefinitions.apiextensions.k8s.io/cluster/widgets.example.com.json",
			"resources/namespaces/cluster/a.json", "resources/namespaces/cluster/b.json",
			"resources/persistentvolumes/cluster/excluded.json", "resources/persistentvolumes/cluster/pv-1.json", "resources/widgets.example.com/namespaces/a/w1.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			api.Add("persistentvolumes", kubetest.Object{Name: "pv-1"}, kubetest.Object{Name: "excluded", Labels: map[string]string{selection.LabelExclude: "true"}},
				kubetest.Object{Name: "going", Deleting: true})
			spec := velerov1.BackupSpec{IncludedClusterScopedResources: []string{"nodes"}, ExcludedClusterScopedResources: []string{"namespaces"},
				IncludedNamespaceScopedResources: []string{"configmaps"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "none"}}}
			api.Add("nodes", kubetest.Object{Name: "n2", Labels: map[string]string{"app": "none"}})
			s := newSetup(t, api, spec, "a").addActions(additionalAction("a.io/x", selectResources("nodes"), tt.must, func(action.Identity) []string {
				return []string{"configmaps b/cm-001", "persistentvolumes pv-1", "persistentvolumes excluded", "persistentvolumes going", "widgets.example.com a/w1"}
			}))
			res, got := s.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Zero(t, res.Warnings)
			require.Equal(t, slices.Sorted(slices.Values(append(tt.want, "resources/nodes/cluster/n2.json"))), got.items)
		})
	}
}

func TestWhatBecomesOfAnObjectWhoseAdditionalItemIsNotStored(t *testing.T) {
	fails := &fakeAction{name: "z.io/fails", selector: selectResources("widgets.example.com"), do: func(_ context.Context, id action.Identity, o *action.Object) (action.BackupResult, error) {
		if id.Name == "w1" {
			return action.BackupResult{}, errors.New("broken")
		}
		return annotatedResult(o, velerov1.AnnotationSkipFromBackup, "")
	}}
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(fails, additionalAction("a.io/x", selectResources("configmaps"), false, func(id action.Identity) []string {
		return map[string][]string{
			"cm-000": {"configmaps a/nosuch"},
			"cm-002": {"unicorns.example.com a/x"},
			"cm-004": {"widgets.example.com a/w1"},
			"cm-006": {"widgets.example.com a/w2"},
			"cm-008": {"configmaps cm-000"},
			"cm-010": {"configmaps a/cm-004"},
			"cm-012": {"nodes/status n1"},
		}[id.Name]
	}))
	res, got := s.runJob(t)
	var errs []string
	for _, e := range got.notes {
		if e.Level == joblog.Error {
			errs = append(errs, e.Name+": "+e.Err)
		}
	}
	slices.Sort(errs)
	require.Equal(t, []string{
		"cm-002: action a.io/x: Execute: additional item unicorns.example.com a/x: the cluster does not serve this resource",
		"cm-004: action a.io/x: Execute: additional item widgets.example.com a/w1: it could not be backed up",
		"cm-008: action a.io/x: Execute: additional item configmaps cm-000: namespace: must be given for this resource",
		"cm-010: action a.io/x: Execute: additional item configmaps a/cm-004: it could not be backed up",
		"cm-012: action a.io/x: Execute: additional item nodes/status n1: the cluster does not serve this resource",
		"w1: broken",
	}, errs)
	require.Equal(t, 6, res.Errors)
	require.Equal(t, []string{"configmaps a/cm-000: action a.io/x asks for configmaps a/nosuch, which does not exist"}, got.notesAt(joblog.Warning))
	require.Contains(t, got.items, configMap("cm-000"), "what does not exist costs nothing")
	require.Contains(t, got.items, configMap("cm-006"), "nor does what an action leaves out")
	require.NotContains(t, got.items, configMap("cm-004"))
}

func TestObjectsThatAskForOneAnotherAreStored(t *testing.T) {
	for _, workers := range []int{1, 4} {
		// cm-000 → cm-002 → cm-004 → … → cm-000, and each object is an additional item of itself.
		ring := additionalAction("a.io/ring", selectResources("configmaps"), false, func(id action.Identity) []string {
			var n int
			if _, err := fmt.Sscanf(id.Name, "cm-%d", &n); err != nil || n >= 60 {
				return nil
			}
			next := (n + 2) % 60
			return []string{fmt.Sprintf("configmaps %s/cm-%03d", []string{"a", "b"}[next%2], next), "configmaps " + id.Namespace + "/" + id.Name}
		})
		s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(ring)
		s.cfg.BlockWorkers = workers
		res, got := s.runJob(t)
		require.Zero(t, res.Errors, got.notesAt(joblog.Error))
		require.Equal(t, 300, ring.calledOnceEach(t))
		require.Equal(t, 300, got.countOf("configmaps"))
	}
}

// However many objects ask for one another in a row, each is stored once: those far behind without
// being waited for.
func TestALongChainOfAdditionalItemsIsStored(t *testing.T) {
	only := velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "only"}}}
	for name, tt := range map[string]struct {
		spec velerov1.BackupSpec
		must bool
	}{
		"in the selection": {velerov1.BackupSpec{}, false},
		"outside of it":    {only, false},
		"past the filters": {velerov1.BackupSpec{IncludedResources: []string{"pods"}}, true},
	} {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d workers", name, workers), func(t *testing.T) {
				api := newEstateServer()
				api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: map[string]string{"app": "only"}})
				long := additionalAction("a.io/long", selectResources("pods", "configmaps"), tt.must, func(id action.Identity) []string {
					var n int
					if _, err := fmt.Sscanf(id.Name, "cm-%d", &n); err != nil {
						return []string{"configmaps a/cm-000"}
					}
					if n == 298 {
						return []string{"configmaps a/nosuch"}
					}
					return []string{fmt.Sprintf("configmaps a/cm-%03d", n+2), "configmaps a/cm-298"}
				})
				s := newSetup(t, api, tt.spec, "a").addActions(long)
				s.cfg.BlockWorkers = workers
				res, got := s.runJob(t)
				require.Zero(t, res.Errors, got.notesAt(joblog.Error))
				require.Equal(t, 151, long.calledOnceEach(t))
				require.Equal(t, 150, got.countOf("configmaps"))
				require.Equal(t, 1, got.countOf("pods"))
				require.Equal(t, []string{"configmaps a/cm-298: action a.io/long asks for configmaps a/nosuch, which does not exist"}, got.notesAt(joblog.Warning))
			})
		}
	}
}

func errorsOf(s stored) (out []string) {
	for _, e := range s.notes {
		if e.Level == joblog.Error {
			out = append(out, e.Err)
		}
	}
	return out
}

// What actions of the second pass ask for may need definitions, namespaces and volumes of its own.
func TestWhatComesLateBringsWhatItNeeds(t *testing.T) {
	api := newEstateServer()
	api.Add("persistentvolumes", kubetest.Object{Name: "pv-1"})
	api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "empty", Name: "c", Body: map[string]any{"spec": map[string]string{"volumeName": "pv-1"}}})
	api.Add("widgets.example.com", kubetest.Object{Namespace: "empty", Name: "late"})
	spec := velerov1.BackupSpec{IncludedResources: []string{"configmaps", "namespaces"}}
	s := newSetup(t, api, spec, "a").addActions(additionalAction("a.io/x", selectResources("namespaces"), true, itemsForObject("a", "widgets.example.com empty/late", "persistentvolumeclaims empty/c")))
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 150, got.countOf("configmaps"))
	for resource, n := range map[string]int{"widgets.example.com": 1, "persistentvolumeclaims": 1, "namespaces": 2} {
		require.Equal(t, n, got.countOf(resource), resource)
	}
}

// Of what no action is expected to ask for, nothing is remembered.
func TestOnlyWhatActionsAskForIsRemembered(t *testing.T) {
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{}).addActions(additionalAction("a.io/x", selectResources("nodes"), false, itemsForObject("n1", "widgets.example.com a/w1", "configmaps a/cm-000")))
	s.job.Actions.Asks = []schema.GroupResource{{Group: "example.com", Resource: "widgets"}}
	res, got := s.runJob(t)
	require.Equal(t, 1, res.Errors)
	require.Equal(t, []string{"action a.io/x: Execute: additional item configmaps a/cm-000: the action was not expected to ask for this resource"}, errorsOf(got))
	require.Equal(t, 2, got.countOf("widgets.example.com"))
	require.Equal(t, 300, got.countOf("configmaps"))
}

// Deferred items are in the part of the object that named them: a holder that dies, or is stopped,
// leaves neither or both.
func TestAStopInTheMiddleOfALongChain(t *testing.T) {
	t.Parallel()
	only := velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "only"}}}
	api := newEstateServer()
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: map[string]string{"app": "only"}})
	s := newSetup(t, api, only, "a")
	stop := make(chan struct{})
	chain := func(stops string) *fakeAction {
		return &fakeAction{name: "a.io/long", selector: selectResources("pods", "configmaps"), do: func(ctx context.Context, id action.Identity, _ *action.Object) (r action.BackupResult, err error) {
			if id.Name == stops {
				close(stop)
				<-ctx.Done()
				return r, ctx.Err()
			}
			n := -2
			if _, err := fmt.Sscanf(id.Name, "cm-%d", &n); err == nil && n == 298 {
				return r, nil
			}
			r.Additional = []action.Item{itemOf(fmt.Sprintf("configmaps a/cm-%03d", n+2))}
			return r, nil
		}}
	}
	s.job.Stop = stop
	s.addActions(chain("cm-200"))
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	res, got := s.nextOwner(t, 2).addActions(chain("")).runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 150, got.countOf("configmaps"))
}

// An additional item that an action creates did not exist at the revision of the lists, and was
// left out with a warning.
func TestAnAdditionalItemThatAnActionMadeIsStored(t *testing.T) {
	api := newEstateServer()
	s := newSetup(t, api, velerov1.BackupSpec{IncludedResources: []string{"nodes", "widgets.example.com"}})
	s.addActions(&fakeAction{name: "a.io/makes", selector: selectResources("nodes"), do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
		api.Add("widgets.example.com", kubetest.Object{Namespace: "b", Name: "made"})
		return action.BackupResult{Additional: []action.Item{itemOf("widgets.example.com b/made")}}, nil
	}})
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Zero(t, res.Warnings+res.Errors)
	require.Contains(t, s.readStored(t, res).items, "resources/widgets.example.com/namespaces/b/made.json")
}
