package builtin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/builtin"
)

const (
	classAction = "velero.io/change-storage-class"
	imageAction = "velero.io/change-image-name"
)

// executeAction executes the action on the object as it was backed up.
func executeAction(t testing.TB, c *cluster, name, object string) (action.RestoreResult, error) {
	t.Helper()
	o := action.FromJSON([]byte(object))
	got, err := byName(t, builtin.ForRestore(c), name).Execute(t.Context(), o, o, restoreJob(t))
	if err == nil {
		require.JSONEq(t, object, jsonOf(t, o), "the object given must not change")
		require.False(t, got.Skip)
	}
	return got, err
}

func TestPodComesAfterItsPriorityClassAndClaims(t *testing.T) {
	moved := action.FromJSON([]byte(`{"kind":"Pod","metadata":{"namespace":"copy","name":"db-0"},"spec":{"priorityClassName":"high",
		"volumes":[{"persistentVolumeClaim":{"claimName":"data"}},{"persistentVolumeClaim":{"claimName":"logs"}}]}}`))
	stored := action.FromJSON([]byte(pod))
	actions := builtin.ForRestore(&cluster{})
	for name, want := range map[string][]string{
		"velero.io/pod":              podItems[2:],
		"velero.io/add-pvc-from-pod": podItems[:2], // in the backup's namespace
	} {
		got, err := byName(t, actions, name).Execute(t.Context(), moved, stored, restoreJob(t))
		require.NoError(t, err)
		require.Same(t, moved, got.Object)
		require.Equal(t, want, itemNames(got.Additional))

		bare := action.FromJSON([]byte(`{"kind":"Pod","metadata":{"namespace":"shop","name":"x"},"spec":{}}`))
		got, err = byName(t, actions, name).Execute(t.Context(), bare, bare, restoreJob(t))
		require.NoError(t, err)
		require.Same(t, bare, got.Object)
		require.Empty(t, got.Additional)
	}
}

func TestClaimComesAfterItsVolume(t *testing.T) {
	for claim, want := range map[string][]string{
		`{"metadata":{"namespace":"shop","name":"c"},"spec":{"volumeName":"v"}}`: {"persistentvolumes v"},
		`{"metadata":{"namespace":"shop","name":"c"},"spec":{}}`:                 {},
	} {
		got, err := executeAction(t, &cluster{}, "velero.io/pvc", claim)
		require.NoError(t, err)
		require.JSONEq(t, claim, jsonOf(t, got.Object))
		require.Equal(t, want, itemNames(got.Additional))
	}
}

func TestStorageClassesChangeAsConfigured(t *testing.T) {
	for name, tc := range map[string]struct {
		in, want   string
		additional []string
	}{
		"claim": {`{"kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":"old"}}`,
			`{"kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":"new"}}`, []string{}},
		"class that is not there": {`{"kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"storageClassName":"gone"}}`,
			`{"kind":"PersistentVolume","metadata":{"name":"v"},"spec":{"storageClassName":"missing"}}`, []string{"storageclasses.storage.k8s.io missing"}},
		"not mapped":      {`{"kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":"kept"}}`, "", []string{}},
		"mapped to same":  {`{"kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":"same"}}`, "", []string{}},
		"default class":   {`{"kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{}}`, "", []string{}},
		"no class":        {`{"kind":"PersistentVolumeClaim","metadata":{"name":"c"},"spec":{"storageClassName":""}}`, "", []string{}},
		"beta annotation": {`{"metadata":{"name":"c","annotations":{"volume.beta.kubernetes.io/storage-class":"old"}},"spec":{}}`, `{"metadata":{"name":"c","annotations":{"volume.beta.kubernetes.io/storage-class":"new"}},"spec":{}}`, []string{}},
		"templates": {`{"kind":"StatefulSet","metadata":{"name":"s"},"spec":{"volumeClaimTemplates":[{"spec":{"storageClassName":"old"}},{"spec":{"storageClassName":"gone"}},{"spec":{"storageClassName":"gone"}},{}]}}`,
			`{"kind":"StatefulSet","metadata":{"name":"s"},"spec":{"volumeClaimTemplates":[{"spec":{"storageClassName":"new"}},{"spec":{"storageClassName":"missing"}},{"spec":{"storageClassName":"missing"}},{}]}}`,
			[]string{"storageclasses.storage.k8s.io missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{classes: []string{"new"}}
			c.addConfigMap(classAction, "classes", map[string]string{"old": " new\n", "gone": "missing", "same": "same"})
			got, err := executeAction(t, c, classAction, tc.in)
			require.NoError(t, err)
			if tc.want == "" {
				tc.want = tc.in
			}
			require.JSONEq(t, tc.want, jsonOf(t, got.Object))
			require.Equal(t, tc.additional, itemNames(got.Additional))
		})
	}
}

func TestAClassThatExistsIsLookedForOnce(t *testing.T) {
	c := &cluster{classes: []string{"new"}}
	c.addConfigMap(classAction, "classes", map[string]string{"old": "new"})
	a := byName(t, builtin.ForRestore(c), classAction)
	o := action.FromJSON([]byte(`{"spec":{"storageClassName":"old"}}`))
	c.fail = []error{nil, errors.New("away")}
	_, err := a.Execute(t.Context(), o, o, restoreJob(t))
	require.EqualError(t, err, "action velero.io/change-storage-class: Execute: look for StorageClass new: away")
	for range 3 {
		_, err := a.Execute(t.Context(), o, o, restoreJob(t))
		require.NoError(t, err)
	}
	require.Len(t, c.calls, 3, c.calls) // the ConfigMap, the failure, the class
}

func TestImagesChangeAsConfigured(t *testing.T) {
	rules := map[string]string{
		"registry": "10.0.0.1:5000, mirror.example.com ", "whole": "10.0.0.1:5000/shop/db:1,db:2", "tag": "nginx:1.0,nginx:1.1", "strip": "docker.io/,",
	}
	for image, want := range map[string]string{
		"10.0.0.1:5000/shop/web:3": "mirror.example.com/shop/web:3",
		"10.0.0.1:5000/shop/db:1":  "db:2", // the longer rule
		"nginx:1.0":                "nginx:1.1",
		"docker.io/busybox":        "busybox",
		"quay.io/other":            "quay.io/other",
	} {
		for kind, at := range map[string][2]string{
			"Pod":         {`{"kind":"Pod","spec":`, `}`},
			"Deployment":  {`{"kind":"Deployment","spec":{"template":{"spec":`, `}}}`},
			"StatefulSet": {`{"kind":"StatefulSet","spec":{"template":{"spec":`, `}}}`},
			"Job":         {`{"kind":"Job","spec":{"template":{"spec":`, `}}}`},
			"CronJob":     {`{"kind":"CronJob","spec":{"jobTemplate":{"spec":{"template":{"spec":`, `}}}}}`},
		} {
			t.Run(kind+" "+image, func(t *testing.T) {
				body := func(image string) string {
					return at[0] + `{"initContainers":[{"name":"i","image":"` + image + `"}],"containers":[{"name":"none"},{"name":"c","image":"` + image + `"}]}` + at[1]
				}
				c := &cluster{}
				c.addConfigMap(imageAction, "images", rules)
				got, err := executeAction(t, c, imageAction, body(image))
				require.NoError(t, err)
				require.JSONEq(t, body(want), jsonOf(t, got.Object))
				require.Empty(t, got.Additional)
			})
		}
	}
}

func TestAnAmbiguousImageRuleIsAnErrorOfTheObject(t *testing.T) {
	c := &cluster{}
	c.addConfigMap(imageAction, "images", map[string]string{"rule": "dev,prod"})
	_, err := executeAction(t, c, imageAction, `{"kind":"Pod","spec":{"containers":[{"image":"dev/app:dev"}]}}`)
	require.EqualError(t, err, `action velero.io/change-image-name: Execute: spec.containers[0]: image: the old part occurs more than once: rule data[rule] on "dev/app:dev"`)
}

// One bad value made every object of the restore an error.
func TestABadImageRuleIsLeftOutWithARemark(t *testing.T) {
	c := &cluster{}
	c.addConfigMap(imageAction, "images", map[string]string{"a": "nothing", "b": " ,new", "c": "a,b,c", "rule": "dev,prod"})
	got, err := executeAction(t, c, imageAction, `{"kind":"Pod","spec":{"containers":[{"image":"dev/app:1"}]}}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"Pod","spec":{"containers":[{"image":"prod/app:1"}]}}`, jsonOf(t, got.Object))
	remarker, ok := byName(t, builtin.ForRestore(c), imageAction).(action.Remarker)
	require.True(t, ok)
	require.Equal(t, []string{
		`action velero.io/change-image-name: ConfigMap images: data[a]: "nothing" is ignored: "old,new" expected`,
		`action velero.io/change-image-name: ConfigMap images: data[b]: " ,new" is ignored: "old,new" expected`,
		`action velero.io/change-image-name: ConfigMap images: data[c]: "a,b,c" is ignored: "old,new" expected`,
	}, remarker.Remarks(t.Context()))
}

func TestABadConfigMapIsAnErrorOfEachObjectThatItNames(t *testing.T) {
	for _, tc := range []struct {
		action, object string
		configs        []string
		data           map[string]string
		want           string
	}{
		{classAction, `{"kind":"PersistentVolume"}`, []string{"m"}, map[string]string{"old": " "}, "ConfigMap m: data[old]: the name of a StorageClass is missing"},
		{classAction, `{"kind":"PersistentVolume"}`, []string{"m", "n"}, nil, "several ConfigMaps are labelled for velero.io/change-storage-class: m, n"},
	} {
		c := &cluster{}
		for _, config := range tc.configs {
			c.addConfigMap(tc.action, config, tc.data)
		}
		_, err := executeAction(t, c, tc.action, tc.object)
		require.ErrorIs(t, err, builtin.ErrConfig)
		require.EqualError(t, err, "action "+tc.action+": Execute: invalid action configuration: "+tc.want)
	}
}

// noResources is a cluster without discovery: names stay as they are.
type noResources struct{}

func (noResources) Resolve(string) (schema.GroupResource, bool, bool) {
	return schema.GroupResource{}, false, false
}

func TestWithoutAConfigMapNothingMatches(t *testing.T) {
	for name, resource := range map[string]string{classAction: "statefulsets.apps", imageAction: "cronjobs.batch"} {
		for _, configured := range []bool{true, false} {
			c := &cluster{}
			c.addConfigMap("velero.io/something-else", "other", nil)
			if configured {
				c.addConfigMap(name, "mine", map[string]string{})
			}
			a := byName(t, builtin.ForRestore(c), name)
			bound, errs := action.Bind(t.Context(), []action.RestoreItem{a}, noResources{})
			require.Empty(t, errs)
			require.Equal(t, configured, bound[0].Resource(schema.ParseGroupResource(resource)))
			require.False(t, bound[0].Resource(schema.GroupResource{Resource: "configmaps"}))
		}
	}
}

func TestAConfigMapThatCannotBeReadIsAskedForAgainAndNotIgnored(t *testing.T) {
	c := &cluster{fail: []error{errors.New("away"), errors.New("away")}}
	c.addConfigMap(imageAction, "images", map[string]string{"rule": "old,new"})
	a := byName(t, builtin.ForRestore(c), imageAction)
	bound, errs := action.Bind(t.Context(), []action.RestoreItem{a}, noResources{})
	require.Empty(t, errs)
	require.True(t, bound[0].Resource(schema.GroupResource{Resource: "pods"}))

	o := action.FromJSON([]byte(`{"kind":"Pod","spec":{"containers":[{"image":"old"}]}}`))
	_, err := a.Execute(t.Context(), o, o, restoreJob(t))
	require.EqualError(t, err, "action velero.io/change-image-name: Execute: read ConfigMap of velero.io/change-image-name: away")
	got, err := a.Execute(t.Context(), o, o, restoreJob(t))
	require.NoError(t, err)
	require.JSONEq(t, `{"kind":"Pod","spec":{"containers":[{"image":"new"}]}}`, jsonOf(t, got.Object))
	require.Len(t, c.calls, 3)
}

func claimOfOld() *action.Object {
	return action.FromJSON([]byte(`{"kind":"PersistentVolumeClaim","spec":{"storageClassName":"old"}}`))
}

// A Pod that was restored with an init container, and backed up with it, is restored with one of the
// name.
func TestAnInitContainerIsAddedOnce(t *testing.T) {
	got, err := executeAction(t, &cluster{}, "velero.io/init-restore-hook", `{"kind":"Pod","metadata":{"namespace":"shop","name":"p","annotations":{
		"init.hook.restore.velero.io/container-image":"busybox:2","init.hook.restore.velero.io/container-name":"unpack","init.hook.restore.velero.io/command":"unpack"}},
		"spec":{"initContainers":[{"name":"restore-wait"},{"name":"unpack","image":"busybox:1"},{"name":"own"}]}}`)
	require.NoError(t, err)
	o, err := got.Object.Content()
	require.NoError(t, err)
	require.Equal(t, map[string]any{"initContainers": []any{map[string]any{"name": "restore-wait"},
		map[string]any{"name": "unpack", "image": "busybox:2", "command": []any{"unpack"}}, map[string]any{"name": "own"}}}, o["spec"])
}

func TestInitContainersComeFirst(t *testing.T) {
	const name = "velero.io/init-restore-hook"
	got, err := executeAction(t, &cluster{}, name, `{"kind":"Pod","metadata":{"namespace":"shop","name":"p","annotations":{
		"init.hook.restore.velero.io/container-image":"busybox","init.hook.restore.velero.io/container-name":"unpack","init.hook.restore.velero.io/command":"unpack"}},
		"spec":{"initContainers":[{"name":"restore-wait"},{"name":"own"}]}}`)
	require.NoError(t, err)
	o, err := got.Object.Content()
	require.NoError(t, err)
	require.Equal(t, map[string]any{"initContainers": []any{map[string]any{"name": "restore-wait"},
		map[string]any{"name": "unpack", "image": "busybox", "command": []any{"unpack"}}, map[string]any{"name": "own"}}}, o["spec"])

	_, err = executeAction(t, &cluster{}, name, `{"kind":"Pod","metadata":{"namespace":"shop","name":"p","annotations":{"init.hook.restore.velero.io/container-image":"busybox"}}}`)
	require.ErrorContains(t, err, "annotation init.hook.restore.velero.io/command")
	_, err = executeAction(t, &cluster{}, name, `{"kind":"Pod","metadata":{"namespace":"shop","name":"p","annotations":{
		"init.hook.restore.velero.io/container-image":"busybox","init.hook.restore.velero.io/command":"x"}},"spec":{"initContainers":{}}}`)
	require.ErrorIs(t, err, builtin.ErrField)
}

func TestInitHooksMeetTheTargetNamespace(t *testing.T) {
	restore, err := action.NewRestore(&velerov1.Restore{Spec: velerov1.RestoreSpec{NamespaceMapping: map[string]string{"shop": "copy"},
		Hooks: velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{{IncludedNamespaces: []string{"copy"}, PostHooks: []velerov1.RestoreResourceHook{
			{Init: &velerov1.InitRestoreHook{InitContainers: []runtime.RawExtension{{Raw: []byte(`{"name":"unpack","image":"busybox","command":["unpack"]}`)}}}}}}}}}})
	require.NoError(t, err)
	a := byName(t, builtin.ForRestore(&cluster{}), "velero.io/init-restore-hook")
	for namespace, want := range map[string]int{"shop": 1, "copy": 1, "other": 0} {
		o := action.FromJSON([]byte(`{"kind":"Pod","metadata":{"namespace":"` + namespace + `","name":"p"},"spec":{}}`))
		got, err := a.Execute(t.Context(), o, o, restore)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(jsonOf(t, got.Object), "busybox"), namespace)
	}
}
