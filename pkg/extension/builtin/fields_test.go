package builtin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
)

// odd has a field of a wrong type for each action that reads it.
var odd = []struct{ action, object, want string }{
	{"velero.io/pod", `{"spec":"x"}`, "spec: an object expected, not a string"},
	{"velero.io/pod", `{"spec":{"volumes":{}}}`, "spec.volumes: a list expected, not an object"},
	{"velero.io/pod", `{"spec":{"volumes":[{},null]}}`, "spec.volumes[1]: an object expected, not null"},
	{"velero.io/pod", `{"spec":{"volumes":[{"persistentVolumeClaim":[]}]}}`, "spec.volumes[0].persistentVolumeClaim: an object expected, not a list"},
	{"velero.io/pod", `{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":1}}]}}`, "spec.volumes[0].persistentVolumeClaim.claimName: a string expected, not a number"},
	{"velero.io/pod", `{"spec":{"priorityClassName":true}}`, "spec.priorityClassName: a string expected, not a boolean"},
	{"velero.io/pod", `{"metadata":{"namespace":1}}`, "metadata.namespace: a string expected, not a number"},
	{"velero.io/pv", `{"status":{"phase":1.5}}`, "status.phase: a string expected, not a number"},
	{"velero.io/pv", `{"status":{"phase":"Bound"},"spec":{"volumeName":{}}}`, "spec.volumeName: a string expected, not an object"},
	{"velero.io/pv", `{"status":{"phase":"Bound"},"spec":{"volumeName":"v","storageClassName":[]}}`, "spec.storageClassName: a string expected, not a list"},
	{"velero.io/pv", `{"status":{"phase":"Bound"},"spec":{"volumeName":"v"},"metadata":{"labels":"x"}}`, "metadata.labels: an object expected, not a string"},
}

var oddRestored = []struct{ action, object, want string }{
	{"velero.io/pod", `{"spec":{"priorityClassName":{}}}`, "spec.priorityClassName: a string expected, not an object"},
	{"velero.io/add-pvc-from-pod", `{"spec":{"volumes":[[]]}}`, "spec.volumes[0]: an object expected, not a list"},
	{"velero.io/pvc", `{"spec":{"volumeName":["v"]}}`, "spec.volumeName: a string expected, not a list"},
	{classAction, `{"spec":{"storageClassName":3}}`, "spec.storageClassName: a string expected, not a number"},
	{classAction, `{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":false}}}`, "metadata.annotations.volume.beta.kubernetes.io/storage-class: a string expected, not a boolean"},
	{classAction, `{"spec":{"volumeClaimTemplates":[{"spec":{"storageClassName":3}}]}}`, "spec.volumeClaimTemplates[0].spec.storageClassName: a string expected, not a number"},
	{imageAction, `{"kind":"Pod","spec":{"containers":"x"}}`, "spec.containers: a list expected, not a string"},
	{imageAction, `{"kind":"Job","spec":{"template":{"spec":{"initContainers":[{"image":{}}]}}}}`, "spec.template.spec.initContainers[0].image: a string expected, not an object"},
}

func configuredCluster() *cluster {
	c := newAccountCluster()
	c.objects["pods"], c.objects["persistentvolumeclaims"] = claimsAndPods().objects["pods"], claimsAndPods().objects["persistentvolumeclaims"]
	c.addConfigMap(classAction, "classes", map[string]string{"old": "new"})
	c.addConfigMap(imageAction, "images", map[string]string{"rule": "old,new"})
	return c
}

func TestFieldsOfAnotherTypeAreNamed(t *testing.T) {
	items, _ := builtin.ForBackup(configuredCluster())
	for _, tc := range odd {
		_, err := byName(t, items, tc.action).Execute(t.Context(), action.FromJSON([]byte(tc.object)), backupJob(t))
		require.ErrorIs(t, err, builtin.ErrField)
		require.EqualError(t, err, "action "+tc.action+": Execute: "+tc.want)
	}
	for _, tc := range oddRestored {
		_, err := executeAction(t, configuredCluster(), tc.action, tc.object)
		require.ErrorIs(t, err, builtin.ErrField)
		require.EqualError(t, err, "action "+tc.action+": Execute: "+tc.want)
	}
}

func TestOddObjectsOfTheClusterAreNamed(t *testing.T) {
	const bindings = "clusterrolebindings.rbac.authorization.k8s.io"
	for object, want := range map[string]string{
		`{"metadata":{"name":"b"},"roleRef":[]}`:                                                       bindings + " b: roleRef: an object expected, not a list",
		`{"metadata":{"name":"b"},"subjects":[{"kind":1}]}`:                                            bindings + " b: subjects[0].kind: a string expected, not a number",
		`{"metadata":{"name":"b"},"subjects":[{"kind":"ServiceAccount","namespace":"x","name":true}]}`: bindings + " b: subjects[0].name: a string expected, not a boolean",
	} {
		items, _ := builtin.ForBackup(&cluster{objects: map[string][]string{bindings: {object}}})
		_, err := byName(t, items, "velero.io/service-account").Execute(t.Context(), action.FromJSON([]byte(accountBot)), backupJob(t))
		require.ErrorIs(t, err, builtin.ErrField)
		require.EqualError(t, err, "action velero.io/service-account: Execute: read ClusterRoleBindings: "+want)
	}
	_, blocks := builtin.ForBackup(&cluster{objects: map[string][]string{"pods": {`{"metadata":{"namespace":"shop","name":"p"},"spec":{"volumes":[1]}}`}}})
	_, err := byName(t, blocks, "velero.io/pvc").Related(t.Context(), action.FromJSON([]byte(`{"metadata":{"namespace":"shop","name":"c"}}`)), backupJob(t))
	require.EqualError(t, err, "action velero.io/pvc: GetRelatedItems: read Pods of namespace shop: pods shop/p: spec.volumes[0]: an object expected, not a number")
}

// FuzzActions feeds every action with whatever is JSON, as an object of a backup or of the cluster.
func FuzzActions(f *testing.F) {
	for _, list := range [][]struct{ action, object, want string }{odd, oddRestored} {
		for _, tc := range list {
			f.Add([]byte(tc.object))
		}
	}
	for _, raw := range []string{pod, accountBot, `null`, `[]`, `{"metadata":null}`, `{"kind":"CronJob","spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"image":"old"}]}}}}}}`,
		`{"metadata":{"name":"c","labels":{"velero.io/restore-name":1}},"spec":{"volumeName":"v","selector":null},"status":{"phase":"Bound"}}`} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := configuredCluster()
		items, blocks := builtin.ForBackup(c)
		for _, a := range items {
			got, err := a.Execute(t.Context(), action.FromJSON(raw), backupJob(t))
			requireSoundAnswer(t, got.Object, err)
			if screens, ok := a.(screener); ok && err == nil && len(got.Additional) > 0 {
				require.True(t, screens.Concerns(raw))
			}
		}
		for _, a := range blocks {
			_, err := a.Related(t.Context(), action.FromJSON(raw), backupJob(t))
			require.NotErrorIs(t, err, builtin.ErrPanic)
		}
		for _, a := range builtin.ForRestore(c) {
			got, err := a.Execute(t.Context(), action.FromJSON(raw), action.FromJSON(raw), restoreJob(t))
			requireSoundAnswer(t, got.Object, err)
		}
	})
}

// requireSoundAnswer requires that every answer is an object or an error from outside of the action.
func requireSoundAnswer(t *testing.T, o *action.Object, err error) {
	t.Helper()
	require.NotErrorIs(t, err, builtin.ErrPanic)
	if err == nil {
		require.NotNil(t, o)
		_, err := o.JSON()
		require.NoError(t, err)
	}
}
