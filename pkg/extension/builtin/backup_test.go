package builtin_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
)

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"db-0"},"spec":{"priorityClassName":"high","volumes":[
	{"name":"a","persistentVolumeClaim":{"claimName":"data"}},{"name":"b","emptyDir":{}},
	{"name":"c","persistentVolumeClaim":{"claimName":"logs"}},{"name":"d","persistentVolumeClaim":{"claimName":"data"}},
	{"name":"e","ephemeral":{"volumeClaimTemplate":{}}}]}}`

var podItems = []string{"persistentvolumeclaims shop/data", "persistentvolumeclaims shop/logs", "priorityclasses.scheduling.k8s.io high"}

func TestPodBringsItsClaimsAndPriorityClass(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  string
		want []string
	}{
		"all":      {pod, podItems},
		"nothing":  {`{"kind":"Pod","metadata":{"namespace":"shop","name":"x"},"spec":{"volumes":[{"emptyDir":{}}]}}`, []string{}},
		"no spec":  {`{"kind":"Pod","metadata":{"namespace":"shop","name":"x"}}`, []string{}},
		"nulls":    {`{"kind":"Pod","metadata":{"namespace":"shop","name":"x"},"spec":{"volumes":null,"priorityClassName":null}}`, []string{}},
		"no names": {`{"spec":{"priorityClassName":"","volumes":[{"persistentVolumeClaim":{"claimName":""}},{"persistentVolumeClaim":null}]}}`, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			items, blocks := builtin.ForBackup(&cluster{})
			o := action.FromJSON([]byte(tc.pod))
			got, err := byName(t, items, "velero.io/pod").Execute(t.Context(), o, backupJob(t))
			require.NoError(t, err)
			require.Same(t, o, got.Object)
			require.Equal(t, tc.want, itemNames(got.Additional))

			found, err := byName(t, blocks, "velero.io/pod").Related(t.Context(), o, backupJob(t))
			require.NoError(t, err)
			require.Equal(t, tc.want, itemNames(found))
		})
	}
}

// screener is what the caller of an action asks it before it decodes an object.
type screener interface{ Concerns(raw []byte) bool }

func TestPodsOfNoConcernNeedNotBeDecoded(t *testing.T) {
	items, blocks := builtin.ForBackup(&cluster{})
	for _, a := range []any{byName(t, items, "velero.io/pod"), byName(t, blocks, "velero.io/pod")} {
		screens, ok := a.(screener)
		require.True(t, ok)
		plain, escaped := []byte(`{"kind":"Pod","spec":{"volumes":[{"configMap":{"name":"claims"}}]}}`), []byte(`{"kind":"Pod","spec":{"\u0070riorityClassName":"x"}}`)
		require.True(t, screens.Concerns([]byte(pod)))
		require.True(t, screens.Concerns(escaped))
		require.False(t, screens.Concerns(plain))
		require.Zero(t, testing.AllocsPerRun(100, func() { screens.Concerns(plain) }))
	}
}

func TestBoundClaimBringsItsVolumeAndForgetsWhatIsSettled(t *testing.T) {
	const unchanged = ""
	for name, tc := range map[string]struct {
		claim, want string
		additional  []string
	}{
		"not bound": {`{"metadata":{"name":"c","labels":{"velero.io/restore-name":"r"}},"spec":{"dataSource":{"kind":"PersistentVolumeClaim"},"selector":{}},"status":{"phase":"Pending"}}`,
			unchanged, []string{}},
		"no status": {`{"metadata":{"name":"c"},"spec":{"volumeName":"v"}}`, unchanged, []string{}},
		"nothing to forget": {`{"metadata":{"name":"c","labels":{"app":"x"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`,
			unchanged, []string{"persistentvolumes v"}},
		"source and selector": {`{"metadata":{"name":"c"},"spec":{"volumeName":"v","storageClassName":"fast","dataSource":{},"dataSourceRef":{},"selector":{"matchLabels":{}}},"status":{"phase":"Bound"}}`,
			`{"metadata":{"name":"c"},"spec":{"volumeName":"v","storageClassName":"fast"},"status":{"phase":"Bound"}}`, []string{"persistentvolumes v"}},
		"selector without a class": {`{"metadata":{"name":"c"},"spec":{"volumeName":"v","selector":{}},"status":{"phase":"Bound"}}`,
			`{"metadata":{"name":"c"},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`, []string{"persistentvolumes v"}},
		"selector of the class that is none": {`{"metadata":{"name":"c"},"spec":{"volumeName":"v","storageClassName":"","dataSource":null,"selector":{}},"status":{"phase":"Bound"}}`,
			`{"metadata":{"name":"c"},"spec":{"volumeName":"v","storageClassName":"","selector":{}},"status":{"phase":"Bound"}}`, []string{"persistentvolumes v"}},
		"labels of another job": {`{"metadata":{"name":"c","labels":{"velero.io/restore-name":"r","velero.io/volume-snapshot-name":"s","velero.io/backup-name":"other","app":"x"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`,
			`{"metadata":{"name":"c","labels":{"app":"x"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`, []string{"persistentvolumes v"}},
		"label of this backup": {`{"metadata":{"name":"c","labels":{"velero.io/backup-name":"nightly"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`,
			unchanged, []string{"persistentvolumes v"}},
		"only such labels": {`{"metadata":{"name":"c","labels":{"velero.io/restore-name":"r"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`,
			`{"metadata":{"name":"c"},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`, []string{"persistentvolumes v"}},
	} {
		t.Run(name, func(t *testing.T) {
			items, _ := builtin.ForBackup(&cluster{})
			o := action.FromJSON([]byte(tc.claim))
			got, err := byName(t, items, "velero.io/pv").Execute(t.Context(), o, backupJob(t))
			require.NoError(t, err)
			require.Equal(t, tc.additional, itemNames(got.Additional))
			require.JSONEq(t, tc.claim, jsonOf(t, o), "the object given must not change")
			if tc.want == unchanged {
				require.Same(t, o, got.Object)
			} else {
				require.JSONEq(t, tc.want, jsonOf(t, got.Object))
			}
		})
	}
}

func newAccountCluster() *cluster {
	return &cluster{objects: map[string][]string{"clusterrolebindings.rbac.authorization.k8s.io": {
		`{"metadata":{"name":"z"},"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"ServiceAccount","namespace":"shop","name":"bot"}]}`,
		`{"metadata":{"name":"a"},"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"bot"},
			{"kind":"ServiceAccount","namespace":"shop","name":"bot"},{"kind":"ServiceAccount","namespace":"shop","name":"bot"},{"kind":"ServiceAccount","namespace":"other","name":"bot"}]}`,
		`{"metadata":{"name":"g"},"roleRef":{"kind":"ClusterRole","name":"edit"},"subjects":[{"kind":"Group","name":"system:serviceaccounts:shop"}]}`,
		`{"metadata":{"name":"n"},"roleRef":{"kind":"ClusterRole","name":"edit"}}`,
	}}}
}

const accountBot = `{"kind":"ServiceAccount","metadata":{"namespace":"shop","name":"bot"}}`

var botItems = []string{"clusterrolebindings.rbac.authorization.k8s.io a", "clusterrolebindings.rbac.authorization.k8s.io z", "clusterroles.rbac.authorization.k8s.io view"}

func TestServiceAccountBringsItsClusterRoles(t *testing.T) {
	c := newAccountCluster()
	items, blocks := builtin.ForBackup(c)
	for account, want := range map[string][]string{
		accountBot: botItems,
		`{"kind":"ServiceAccount","metadata":{"namespace":"shop","name":"default"}}`: {},
	} {
		o := action.FromJSON([]byte(account))
		got, err := byName(t, items, "velero.io/service-account").Execute(t.Context(), o, backupJob(t))
		require.NoError(t, err)
		require.Same(t, o, got.Object)
		require.Equal(t, want, itemNames(got.Additional))
		found, err := byName(t, blocks, "velero.io/service-account").Related(t.Context(), o, backupJob(t))
		require.NoError(t, err)
		require.Equal(t, want, itemNames(found))
	}
	require.Len(t, c.calls, 1, "bindings are read once per job")
}

func TestFailureToReadBindingsIsTriedAgain(t *testing.T) {
	c := newAccountCluster()
	c.fail = []error{errors.New("away")}
	items, _ := builtin.ForBackup(c)
	a := byName(t, items, "velero.io/service-account")
	o := action.FromJSON([]byte(accountBot))
	_, err := a.Execute(t.Context(), o, backupJob(t))
	require.EqualError(t, err, "action velero.io/service-account: Execute: read ClusterRoleBindings: away")
	got, err := a.Execute(t.Context(), o, backupJob(t))
	require.NoError(t, err)
	require.Equal(t, botItems, itemNames(got.Additional))
}

func claimsAndPods() *cluster {
	return &cluster{objects: map[string][]string{
		"pods": {pod,
			`{"metadata":{"namespace":"shop","name":"web"},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"data"}}]}}`,
			`{"metadata":{"namespace":"other","name":"web"},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"data"}}]}}`},
		"persistentvolumeclaims": {
			`{"metadata":{"namespace":"shop","name":"data","labels":{"velero.io/volume-group":"g","group":"h"}}}`,
			`{"metadata":{"namespace":"shop","name":"logs","labels":{"velero.io/volume-group":"g"}}}`,
			`{"metadata":{"namespace":"shop","name":"tmp","labels":{"velero.io/volume-group":"other","group":"h"}}}`,
			`{"metadata":{"namespace":"other","name":"data","labels":{"velero.io/volume-group":"g"}}}`},
	}}
}

func TestClaimIsInOneBlockWithVolumePodsAndGroup(t *testing.T) {
	const (
		bound = `{"metadata":{"namespace":"shop","name":"data","labels":{"velero.io/volume-group":"g","group":"h"}},"spec":{"volumeName":"v"},"status":{"phase":"Bound"}}`
		loose = `{"metadata":{"namespace":"shop","name":"unused"},"spec":{"volumeName":"v"}}`
	)
	c := claimsAndPods()
	for name, tc := range map[string]struct {
		claim, label string
		want         []string
	}{
		"default label": {bound, "", []string{"persistentvolumes v", "pods shop/db-0", "pods shop/web", "persistentvolumeclaims shop/logs"}},
		"its own label": {bound, "group", []string{"persistentvolumes v", "pods shop/db-0", "pods shop/web", "persistentvolumeclaims shop/tmp"}},
		"alone":         {loose, "", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, blocks := builtin.ForBackup(c)
			job := backupJob(t, func(b *velerov1.Backup) { b.Spec.VolumeGroupSnapshotLabelKey = tc.label })
			a := byName(t, blocks, "velero.io/pvc")
			before := len(c.calls)
			for range 2 {
				got, err := a.Related(t.Context(), action.FromJSON([]byte(tc.claim)), job)
				require.NoError(t, err)
				require.Equal(t, tc.want, itemNames(got))
			}
			require.LessOrEqual(t, len(c.calls)-before, 2, "Pods and claims of a namespace are read once")
		})
	}
}

// A Pod that the selector of the backup did not match was stored, and so were all of its claims, since it mounts a
// claim that is selected.
func TestPodsThatNoSelectorMatchesAreNotInTheBlockOfTheirClaim(t *testing.T) {
	labelled := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": value}}
	}
	mounting := func(name, app string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"shop","name":%q,"labels":{"app":%q,"tier":"x"}},"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"data"}}]}}`, name, app)
	}
	c := &cluster{objects: map[string][]string{"pods": {mounting("a", "a"), mounting("b", "b"), mounting("c", "c")}}}
	for name, tc := range map[string]struct {
		spec velerov1.BackupSpec
		want []string
	}{
		"no selector": {velerov1.BackupSpec{}, []string{"pods shop/a", "pods shop/b", "pods shop/c"}},
		"one":         {velerov1.BackupSpec{LabelSelector: labelled("a")}, []string{"pods shop/a"}},
		"several": {velerov1.BackupSpec{OrLabelSelectors: []*metav1.LabelSelector{labelled("c"), labelled("b"), {MatchLabels: map[string]string{"app": "c", "tier": "x"}}}},
			[]string{"pods shop/c", "pods shop/b"}},
		"none of them": {velerov1.BackupSpec{LabelSelector: labelled("d")}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, blocks := builtin.ForBackup(c)
			found, err := byName(t, blocks, "velero.io/pvc").Related(t.Context(), action.FromJSON([]byte(`{"metadata":{"namespace":"shop","name":"data"}}`)),
				backupJob(t, func(b *velerov1.Backup) { b.Spec = tc.spec }))
			require.NoError(t, err)
			require.Equal(t, tc.want, itemNames(found))
		})
	}
}

func TestBlockOfAClaimFailsWithWhatCannotBeRead(t *testing.T) {
	c := claimsAndPods()
	_, blocks := builtin.ForBackup(c)
	a := byName(t, blocks, "velero.io/pvc")
	o := action.FromJSON([]byte(`{"metadata":{"namespace":"shop","name":"data","labels":{"velero.io/volume-group":"g"}}}`))
	c.fail = []error{errors.New("away")}
	_, err := a.Related(t.Context(), o, backupJob(t))
	require.EqualError(t, err, "action velero.io/pvc: GetRelatedItems: read Pods of namespace shop: away")
	c.fail = []error{nil, errors.New("away")}
	_, err = a.Related(t.Context(), o, backupJob(t))
	require.EqualError(t, err, "action velero.io/pvc: GetRelatedItems: read PersistentVolumeClaims of namespace shop: away")
	_, err = a.Related(t.Context(), action.FromJSON([]byte(`{"metadata":{"namespace":"shop","name":"x","labels":{"a b":"g"}}}`)),
		backupJob(t, func(b *velerov1.Backup) { b.Spec.VolumeGroupSnapshotLabelKey = "a b" }))
	require.ErrorContains(t, err, "spec.volumeGroupSnapshotLabelKey")
	_, err = a.Related(t.Context(), o, backupJob(t))
	require.NoError(t, err)
}

func TestActionsAreNamedAsInVeleroAndAskForTheirKindOnly(t *testing.T) {
	want := map[string][]string{
		"velero.io/pod": {"pods"}, "velero.io/pv": {"persistentvolumeclaims"}, "velero.io/pvc": {"persistentvolumeclaims"}, "velero.io/service-account": {"serviceaccounts"},
	}
	items, blocks := builtin.ForBackup(&cluster{})
	var all []action.Action
	for _, a := range items {
		all = append(all, a)
	}
	for _, a := range blocks {
		all = append(all, a)
	}
	require.Len(t, all, 6)
	for _, a := range all {
		selector, err := a.AppliesTo(t.Context())
		require.NoError(t, err)
		require.Equal(t, action.Selector{IncludedResources: want[a.Name()]}, selector, a.Name())
	}
}
