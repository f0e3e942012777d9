package collect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// newLabelledSetup selects by label in namespace a, where six pods have it.
func newLabelledSetup(t *testing.T) *setup {
	t.Helper()
	api := newEstateServer()
	for i := range 6 {
		api.Add("pods", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("p-%d", i), Labels: map[string]string{"app": "only"}})
		api.Add("persistentvolumes", kubetest.Object{Name: fmt.Sprintf("pv-%d", i)})
	}
	s := newSetup(t, api, velerov1.BackupSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "only"}}}, "a")
	s.cfg.Workers = 1
	return s
}

// relatingAction returns an item block action that relates these items to the objects of those names.
func relatingAction(items map[string][]string) *fakeBlock {
	return &fakeBlock{name: "a.io/block", selector: action.Selector{}, related: func(id action.Identity) ([]string, error) { return items[id.Name], nil }}
}

// While p-0 is processed the block of p-1 waits for the only worker: that of p-5 is formed when p-5
// is stored already.
func TestAnAdditionalItemIsAskedWhatBelongsToItsBlock(t *testing.T) {
	s := newLabelledSetup(t).addActions(additionalAction("a.io/asks", selectResources("pods"), false, itemsForObject("p-0", "pods a/p-5")))
	blocks := relatingAction(map[string][]string{"p-5": {"persistentvolumes pv-1", "configmaps a/cm-000", "configmaps a/nosuch"}, "cm-000": {"persistentvolumes pv-2"}})
	s.job.Actions.Blocks = []action.ItemBlock{blocks}
	res, got := s.runJob(t)
	require.Zero(t, res.Errors, got.notesAt(joblog.Error))
	require.Equal(t, 6, got.countOf("pods"))
	require.Equal(t, 2, got.countOf("persistentvolumes"))
	require.Contains(t, got.items, configMap("cm-000"))
	require.Len(t, got.notesAt(joblog.Warning), 1)
	require.Equal(t, 1, blocks.asked["Pod a/p-5"])
}

// What an action asked for from outside the selection has no block of its own, but is a member of
// the block that names it, whichever comes first.
func TestAnAdditionalItemIsAskedWhereABlockNamesIt(t *testing.T) {
	for name, asker := range map[string]string{"before": "p-0", "after": "p-5"} {
		t.Run(name, func(t *testing.T) {
			s := newLabelledSetup(t).addActions(additionalAction("a.io/asks", selectResources("pods"), false, itemsForObject(asker, "configmaps a/cm-000", "configmaps a/cm-002")))
			blocks := relatingAction(map[string][]string{"p-4": {"configmaps a/cm-000"}, "cm-000": {"persistentvolumes pv-1"}, "cm-002": {"persistentvolumes pv-2"}})
			s.job.Actions.Blocks = []action.ItemBlock{blocks}
			res, got := s.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, 2, got.countOf("configmaps"))
			require.Equal(t, 1, got.countOf("persistentvolumes"))
			require.Equal(t, 1, blocks.asked["ConfigMap a/cm-000"])
			require.Contains(t, got.items, "resources/persistentvolumes/cluster/pv-1.json")
		})
	}
}

func init() {
	moreScenarios = append(moreScenarios, func(all map[string]scenario) {
		sc := withBusyActions(allScenarios()["or-selectors and a missing namespace"])
		busy := sc.actions
		sc.actions = func() []action.BackupItem {
			return append(busy(), additionalAction("c.io/ring", selectResources("pods", "configmaps"), false, func(id action.Identity) []string {
				n := int(id.Name[len(id.Name)-1] - '0')
				return []string{fmt.Sprintf("pods a/pod-%02d", (n+3)%10), fmt.Sprintf("widgets.example.com a/w-1%d", n)}
			}))
		}
		sc.blocks = func() []action.ItemBlock {
			return []action.ItemBlock{&fakeBlock{name: "a.io/block", selector: selectResources("pods", "configmaps", "widgets.example.com"), related: func(id action.Identity) ([]string, error) {
				n := id.Name[len(id.Name)-1:]
				if id.Kind.Kind == "Widget" {
					return []string{"persistentvolumes pv-0" + n, "persistentvolumes pv-1" + n, "configmaps a/none-" + id.Name}, nil
				}
				return []string{"configmaps " + []string{"a", "b"}[(n[0]-'0')%2] + "/cm-02" + n, "widgets.example.com a/w-0" + n}, nil
			}}}
		}
		all["additional items with item blocks"] = sc
	})
}

// What is owed to an object that was processed detached is known to a third holder, too, and what
// was done about it.
func TestTwoDeathsBesideItemBlocks(t *testing.T) {
	t.Parallel()
	sc := withActions(allScenarios())["additional items with item blocks"]
	sc.twoDeaths(t, []int{22, 30, 38, 46, 54}, []int{2, 7, 12, 17, 22})
}
