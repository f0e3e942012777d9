package collect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/dryrun"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// safeAction is an action that a dry run may call.
type safeAction struct{ action.BackupItem }

func (safeAction) DryRunSafe() {}

// dryRun makes the dry run of the setup's job and returns its rows by the names of the objects.
func (s *setup) dryRun(t *testing.T) (*dryrun.Result, map[string]storedplan.Row) {
	t.Helper()
	rows := storedplan.NewWriter(t.TempDir())
	defer func() { require.NoError(t, rows.Close()) }()
	cfg := dryrun.Config{Backup: s.job.Backup, Filter: s.job.Filter, Catalog: s.job.Catalog, Lister: s.cfg.Lister, LiveNamespaces: s.job.LiveNamespaces, Actions: s.job.Actions,
		Cut: cut.New(revisions{s.lists, cut.NewKinds(s.lists, s.cfg.Clock)}, true), Hooks: s.job.Hooks, Snapshots: s.job.Snapshots, Rows: rows, Workers: s.cfg.Workers}
	found, err := dryrun.Run(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, rows.Sort())
	out := map[string]storedplan.Row{}
	for row, err := range rows.Rows() {
		require.NoError(t, err)
		require.Equal(t, storedplan.ActionStore, row.Action)
		out[row.Kind+" "+row.Namespace+"/"+row.Name] = *row
	}
	require.Len(t, out, int(found.Objects))
	return found, out
}

// runNames returns the names of what a real run stores, in the same form.
func (s *setup) runNames(t *testing.T) []string {
	t.Helper()
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	var out []string
	for _, item := range s.readStored(t, res).entries {
		out = append(out, item.Kind+" "+item.Namespace+"/"+item.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func sortedNames(rows map[string]storedplan.Row) []string {
	var out []string
	for name := range rows {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func TestADryRunFindsWhatABackupStores(t *testing.T) {
	yes, no := true, false
	for name, tt := range map[string]struct {
		spec       velerov1.BackupSpec
		namespaces []string
	}{
		"everything":            {},
		"one namespace":         {velerov1.BackupSpec{IncludedNamespaces: []string{"a"}}, []string{"a"}},
		"two in one list":       {velerov1.BackupSpec{}, []string{"b", "empty"}},
		"all but one":           {velerov1.BackupSpec{}, []string{"!b", "*"}},
		"labels":                {velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}, nil},
		"or-selectors":          {velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{{MatchLabels: map[string]string{"app": "x"}}, {MatchLabels: map[string]string{"app": "y"}}}}, nil},
		"old filter":            {velerov1.BackupSpec{IncludedResources: []string{"widgets", "nodes"}, IncludeClusterResources: &yes}, nil},
		"new filter":            {velerov1.BackupSpec{IncludedClusterScopedResources: []string{"nodes"}, ExcludedNamespaceScopedResources: []string{"configmaps"}}, []string{"a"}},
		"no cluster resources":  {velerov1.BackupSpec{IncludeClusterResources: &no}, nil},
		"named by safe actions": {velerov1.BackupSpec{IncludedResources: []string{"pods", "persistentvolumeclaims"}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			api := newEstateServer()
			api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "out", Labels: map[string]string{selection.LabelExclude: "true"}}, kubetest.Object{Namespace: "a", Name: "going", Deleting: true})
			api.Add("persistentvolumes", kubetest.Object{Name: "pv1"}, kubetest.Object{Name: "pv2"})
			api.Add("persistentvolumeclaims", volumeClaim("a", "c1", "pv1"), volumeClaim("b", "c2", "pv2"))
			api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Labels: map[string]string{"app": "x"}})
			s := newSetup(t, api, tt.spec, tt.namespaces...)
			s.addActions(safeAction{additionalAction("a.io/claims", selectResources("pods"), false, func(action.Identity) []string {
				return []string{"persistentvolumeclaims a/c1", "nodes n1", "widgets.example.com a/w1", "pods b/absent"}
			})})
			_, planned := s.dryRun(t)
			require.Equal(t, s.runNames(t), sortedNames(planned))
		})
	}
}

// A dry run reads and writes nothing: requests but lists would change the cluster, and whole objects are listed only where more than
// their metadata counts.
func TestADryRunListsMetadataAlone(t *testing.T) {
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{})
	lists := &watchedLists{Client: s.lists, whole: map[string]bool{}}
	s.cfg.Lister = lists
	found, planned := s.dryRun(t)
	require.Len(t, planned, 308)
	require.Equal(t, map[string]bool{"configmaps": false, "namespaces": false, "pods": true, "persistentvolumeclaims": true, "persistentvolumes": true,
		"nodes": false, "widgets": false, "customresourcedefinitions": false}, lists.whole)
	require.Equal(t, int64(300), found.Kinds["v1/ConfigMap"].Objects)
	require.Equal(t, map[string]int64{"": 6, "a": 152, "b": 150}, found.Namespaces)
	require.Empty(t, s.store.Keys(), "nothing is stored")
}

func TestADryRunSaysWhatItCannotTell(t *testing.T) {
	api := newEstateServer()
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p", Annotations: map[string]string{
		"pre.hook.backup.velero.io/command": "sync"}})
	s := newSetup(t, api, velerov1.BackupSpec{IncludedNamespaces: []string{"a", "gone"}}, "a", "gone").withHooks(t, nil)
	plugin := &fakeAction{name: "v.io/p", selector: selectResources("widgets.example.com"), do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
		return action.BackupResult{}, errors.New("a dry run calls no plugin")
	}}
	s.addActions(plugin, &fakeAction{name: "v.io/broken", unbound: errors.New("no answer")})
	found, planned := s.dryRun(t)
	require.Empty(t, plugin.calls)
	require.Equal(t, []string{"v.io/p"}, found.NotCalled)
	require.Equal(t, []string{"action v.io/p may change the object and add others"}, planned["Widget a/w1"].Unknown)
	require.Empty(t, planned["ConfigMap a/cm-000"].Unknown)
	require.Equal(t, int64(1), found.HookedPods)
	reasons := strings.Join(planned["Pod a/p"].Reasons, "\n")
	require.Contains(t, reasons, "1 pre, 0 post")
	messages := strings.Join(found.Messages, "\n")
	require.Contains(t, messages, "namespace gone is included by name and does not exist")
	require.Contains(t, messages, "v.io/broken")
	require.Contains(t, messages, "The backup is of some namespaces")
}

func TestADryRunDecidesOnVolumesAsTheRunDoes(t *testing.T) {
	for name, choice := range map[string]*bool{"snapshots": nil, "by choice": ptr.To(false)} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, newDiskServer(), velerov1.BackupSpec{SnapshotVolumes: choice}).withSnapshots(&cloud{knows: hasNativeSnapshot}, "empty", "main")
			found, planned := s.dryRun(t)
			taken := map[string]bool{}
			for _, v := range found.Volumes {
				taken[v.Name] = taken[v.Name] || v.Taken
			}
			require.Equal(t, choice == nil, taken["pv-good"])
			require.False(t, taken["pv-foreign"])
			text := "volume data would be taken: native snapshot in VolumeSnapshotLocation main"
			if choice != nil {
				text = "volume data would not be backed up"
			}
			require.Contains(t, strings.Join(planned["PersistentVolumeClaim a/good"].Reasons, "\n"), text)
			cloud, _ := s.job.Snapshots.Locations.(*cloud)
			require.Empty(t, cloud.taken)
			require.Equal(t, s.runNames(t), sortedNames(planned))
		})
	}
}

// What goes wrong with each object of a large cluster does not make a plan that cannot be sent.
func TestADryRunBoundsItsRemarks(t *testing.T) {
	s := newSetup(t, newEstateServer(), velerov1.BackupSpec{IncludedResources: []string{"configmaps"}})
	s.addActions(safeAction{&fakeAction{name: "a.io/fails", do: func(context.Context, action.Identity, *action.Object) (action.BackupResult, error) {
		return action.BackupResult{}, errors.New("no")
	}}})
	found, planned := s.dryRun(t)
	require.Empty(t, planned, "the run would store none of them, nor their namespaces")
	require.Len(t, found.Messages, 201)
	require.Equal(t, "and 100 remarks more", found.Messages[200])
}

// watchedLists notes which resources were listed with more than metadata.
type watchedLists struct {
	*rawlist.Client
	mu    sync.Mutex
	whole map[string]bool
}

func (w *watchedLists) List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
	w.mu.Lock()
	w.whole[req.Resource.Resource] = w.whole[req.Resource.Resource] || !req.Metadata
	w.mu.Unlock()
	return w.Client.List(ctx, req, sink)
}
