package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// fakeBlock is an item block action without a process.
type fakeBlock struct {
	name     string
	selector action.Selector
	related  func(id action.Identity) ([]string, error)

	mu    sync.Mutex
	asked map[string]int
}

func (f *fakeBlock) Name() string { return f.name }

func (f *fakeBlock) AppliesTo(context.Context) (action.Selector, error) { return f.selector, nil }

func (f *fakeBlock) Related(_ context.Context, o *action.Object, _ *action.Backup) (out []action.Item, err error) {
	id, err := o.Identity()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[id.String()]++
	f.mu.Unlock()
	texts, err := f.related(id)
	for _, text := range texts {
		out = append(out, itemOf(text))
	}
	return out, err
}

// order is an action that notes when it was called.
type order struct {
	mu    sync.Mutex
	names []string
}

func (o *order) orderedAction(resource ...string) *fakeAction {
	return &fakeAction{name: "z.io/order", selector: selectResources(resource...), do: func(_ context.Context, id action.Identity, _ *action.Object) (action.BackupResult, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.names = append(o.names, id.Kind.Kind+" "+id.Name)
		return action.BackupResult{}, nil
	}}
}

func TestWhatBelongsTogetherIsProcessedTogether(t *testing.T) {
	api := newEstateServer()
	for i := range 6 {
		api.Add("pods", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("p-%d", i)})
	}
	// Pods 0, 2 and 4 share a widget, which relates back to all of them; 1 is alone.
	blocks := &fakeBlock{name: "a.io/block", selector: selectResources("pods", "widgets.example.com"), related: func(id action.Identity) ([]string, error) {
		switch {
		case id.Name == "w1":
			return []string{"pods a/p-0", "pods a/p-2", "pods a/p-4"}, nil
		case strings.HasPrefix(id.Name, "p-") && id.Name[2]%2 == 0:
			return []string{"widgets.example.com a/w1", "configmaps a/cm-000", "nodes n1"}, nil
		}
		return nil, nil
	}}
	var seen order
	looks := seen.orderedAction("pods", "widgets.example.com")
	s := newSetup(t, api, velerov1.BackupSpec{}).addActions(looks)
	s.job.Actions.Blocks = []action.ItemBlock{blocks}
	s.cfg.Workers = 1
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 8, looks.calledOnceEach(t))
	at := slices.Index(seen.names, "Pod p-0")
	require.Equal(t, []string{"Pod p-0", "Widget w1", "Pod p-2", "Pod p-4"}, seen.names[at:at+4])
	require.Len(t, blocks.asked, 8)
	for id, n := range blocks.asked {
		require.Equal(t, 1, n, id)
	}
	require.Equal(t, 6, got.countOf("pods"))
}

func TestRelatedObjectsOutsideTheSelection(t *testing.T) {
	api := newEstateServer()
	api.Add("persistentvolumes", kubetest.Object{Name: "pv-1"})
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: map[string]string{"app": "only"}},
		kubetest.Object{Namespace: "a", Name: "q", Labels: map[string]string{"app": "only"}})
	broken := errors.New("plugin a.io/block: GetRelatedItems of Pod a/q: no")
	blocks := &fakeBlock{name: "a.io/block", selector: action.Selector{}, related: func(id action.Identity) ([]string, error) {
		switch id.Name {
		case "p":
			return []string{"configmaps a/cm-000", "configmaps b/cm-001", "configmaps a/nosuch", "unicorns.example.com a/x"}, nil
		case "cm-000":
			return []string{"persistentvolumes pv-1", "pods a/p"}, nil
		case "q":
			return nil, broken
		}
		return nil, nil
	}}
	trace := tracingAction("b.io/trace", selectResources("configmaps"))
	s := newSetup(t, api, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "only"}}}, "a").addActions(trace)
	s.job.Actions.Blocks = []action.ItemBlock{blocks}
	s.cfg.BlockWorkers = 4
	res, got := s.runJob(t)
	require.Equal(t, []string{
		"resources/configmaps/namespaces/a/cm-000.json", "resources/namespaces/cluster/a.json",
		"resources/persistentvolumes/cluster/pv-1.json", "resources/pods/namespaces/a/p.json", "resources/pods/namespaces/a/q.json",
	}, got.items, "what is related to something related comes too, and filters hold")
	require.Equal(t, 1, trace.calledOnceEach(t))
	require.Equal(t, 2, res.Errors)
	errs := strings.Join(errorsOf(got), "\n")
	require.Contains(t, errs, broken.Error())
	require.Contains(t, errs, "related item unicorns.example.com a/x: the cluster does not serve this resource")
	require.Equal(t, []string{"configmaps a/nosuch: an action puts this object into an item block, and it does not exist"}, got.notesAt(joblog.Warning))
}

// A block that is not finished when the run is stopped is begun anew: what is related to an
// object may be known through it alone.
func TestAStopInTheMiddleOfABlock(t *testing.T) {
	t.Parallel()
	api := newEstateServer()
	api.Add("persistentvolumes", kubetest.Object{Name: "pv-1"})
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: map[string]string{"app": "only"}})
	stop := make(chan struct{})
	waits := &fakeAction{name: "z.io/waits", selector: selectResources("persistentvolumes"), do: func(ctx context.Context, _ action.Identity, _ *action.Object) (action.BackupResult, error) {
		close(stop)
		<-ctx.Done()
		return action.BackupResult{}, ctx.Err()
	}}
	s := newSetup(t, api, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "only"}}}, "a")
	s.job.Actions.Blocks = []action.ItemBlock{&fakeBlock{name: "a.io/block", selector: selectResources("pods"), related: func(action.Identity) ([]string, error) {
		return []string{"persistentvolumes pv-1"}, nil
	}}}
	s.job.Stop = stop
	begins := starter{tracingAction("a.io/begins", selectResources("pods"))}
	s.addActions(begins, waits)
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	next := s.nextOwner(t, 2).addActions(begins, tracingAction("z.io/waits", selectResources("persistentvolumes")))
	res, got := next.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 1, begins.calledOnceEach(t), "its answer is recorded")
	require.Equal(t, "a.io/begins", traceOf(next.storedBodies(t, res)["resources/pods/namespaces/a/p.json"]))
	require.Equal(t, []string{
		"resources/namespaces/cluster/a.json", "resources/persistentvolumes/cluster/pv-1.json", "resources/pods/namespaces/a/p.json",
	}, got.items)
}

func init() {
	moreScenarios = append(moreScenarios, func(all map[string]scenario) {
		blocks := withBusyActions(allScenarios()["or-selectors and a missing namespace"])
		blocks.blocks = func() []action.ItemBlock {
			return []action.ItemBlock{&fakeBlock{name: "a.io/block", selector: selectResources("pods"), related: func(id action.Identity) ([]string, error) {
				n := id.Name[len(id.Name)-2:]
				return []string{"configmaps b/cm-0" + n, "configmaps a/cm-0" + n, "pods a/pod-09", "persistentvolumes pv-1" + n[1:]}, nil
			}}}
		}
		all["actions with item blocks"] = blocks
	})
}
