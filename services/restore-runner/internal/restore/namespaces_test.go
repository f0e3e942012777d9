package restore_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

const spacePath = "/api/v1/namespaces/a"

// spaceBackup has a namespace and an object in it.
func spaceBackup(labels object) *backup {
	b := &backup{}
	b.addObject("namespaces", "v1", "Namespace", "", "a", object{"metadata": object{"labels": labels, "managedFields": []any{
		object{"manager": "platform", "operation": "Apply"}}}, "spec": object{"finalizers": []any{"kubernetes"}}})
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	return b
}

// putSpace puts a namespace into the cluster, as another one made it.
func putSpace(s *kubetest.Server, labels object) {
	s.Put(spacePath, object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "a", "labels": labels}, "spec": object{"finalizers": []any{"other"}}})
}

func TestThePolicyHoldsForNamespaces(t *testing.T) {
	update := velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate}
	for name, tt := range map[string]struct {
		live    object
		spec    velerov1.RestoreSpec
		want    string
		warning string
		labels  object
	}{
		"equal":             {object{"team": "red", "kubernetes.io/metadata.name": "a"}, velerov1.RestoreSpec{}, "a(skipped)", "", object{"team": "red", "kubernetes.io/metadata.name": "a"}},
		"different":         {object{"team": "blue"}, velerov1.RestoreSpec{}, "a(failed)", `namespaces a: could not restore, Namespace "a" exists already and differs from the backup`, object{"team": "blue"}},
		"equal, update":     {object{"team": "red"}, update, "a(skipped)", "", object{"team": "red"}},
		"different, update": {object{"team": "blue", "more": "x", "kubernetes.io/metadata.name": "a"}, update, "a(updated)", "", object{"team": "red", "kubernetes.io/metadata.name": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), spaceBackup(object{"team": "red", "kubernetes.io/metadata.name": "a"})
			putSpace(s, tt.live)
			f := runRestore(t, s, b, tt.spec)
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, tt.warning, f.results.Warnings.allMessages())
			require.Equal(t, []string{tt.want}, f.list["v1/Namespace"])
			require.Equal(t, tt.labels, kubetest.Meta(s.Object(spacePath))["labels"])
			require.Equal(t, tt.want == "a(updated)", len(s.Requests("PATCH "+spacePath)) > 0, "one that is as in the backup is not written")
			require.NotNil(t, s.Object(spacePath+"/configmaps/c"))
		})
	}
}

func TestManagedFieldsOfNamespacesComeBack(t *testing.T) {
	s, b := kubetest.Start(t), spaceBackup(nil)
	f := runRestore(t, s, b, velerov1.RestoreSpec{})
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, []string{"platform", "holdfast-restore-" + string(restoreUID)}, s.Managers(spacePath), "a successor knows it again")
}

// A Namespace that the backup or the restore does not select is there for what lives in it.
func TestNamespacesThatAreNotSelectedAreOnlyCreated(t *testing.T) {
	for name, tt := range map[string]struct {
		extra bool
		spec  velerov1.RestoreSpec
	}{
		"an extra of the backup":    {true, velerov1.RestoreSpec{}},
		"excluded":                  {false, velerov1.RestoreSpec{ExcludedResources: []string{"namespaces"}}},
		"not among the resources":   {false, velerov1.RestoreSpec{IncludedResources: []string{"configmaps"}}},
		"not matching the selector": {false, velerov1.RestoreSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := spaceBackup(object{"team": "red"})
			b.items[0].Extra, b.items[1].Labels = tt.extra, map[string]string{"app": "x"}
			tt.spec.ExistingResourcePolicy = velerov1.PolicyTypeUpdate
			s := kubetest.Start(t)
			f := runRestore(t, s, b, tt.spec)
			require.Equal(t, []string{"a(created)"}, f.list["v1/Namespace"])
			require.Equal(t, object{"team": "red"}, kubetest.Meta(s.Object(spacePath))["labels"])

			s = kubetest.Start(t)
			putSpace(s, object{"team": "blue"})
			f = runRestore(t, s, b, tt.spec)
			require.Empty(t, f.results.Warnings.allMessages())
			require.Equal(t, []string{"a(skipped)"}, f.list["v1/Namespace"])
			require.Equal(t, object{"team": "blue"}, kubetest.Meta(s.Object(spacePath))["labels"])
			require.NotNil(t, s.Object(spacePath+"/configmaps/c"))
		})
	}
	b := spaceBackup(nil)
	b.items, b.items[0].Extra = b.items[:1], true
	f := runRestore(t, kubetest.Start(t), b, velerov1.RestoreSpec{})
	require.Empty(t, f.list["v1/Namespace"], "nothing that is restored lives in it")
}

func TestANamespaceIsCreatedWithoutWhatAdmissionRefuses(t *testing.T) {
	labels := object{"team": "red", "x.tree.hnc.x-k8s.io/depth": "0", "depth": "1", "a": "b"}
	has := func(keys ...string) func(labels object) bool {
		return func(labels object) bool {
			for _, k := range keys {
				if labels[k] != nil {
					return true
				}
			}
			return false
		}
	}
	for name, tt := range map[string]struct {
		text    string
		refuses func(labels object) bool
		out     []string
		err     bool
	}{
		"a label that the refusal names": {`namespaces "a" is forbidden: cannot set tree label "x.tree.hnc.x-k8s.io/depth"`, has("x.tree.hnc.x-k8s.io/depth"),
			[]string{"x.tree.hnc.x-k8s.io/depth"}, false},
		"in a path":                 {"rule failed at path /metadata/labels/depth/", has("depth"), []string{"depth"}, false},
		"two, and one is named":     {"the label depth", has("depth", "team"), []string{"depth", "team"}, false},
		"a label that nobody names": {"no", has("team"), []string{"team"}, false},
		"all":                       {"no", has("team", "depth", "a"), []string{"x.tree.hnc.x-k8s.io/depth", "depth", "team", "a"}, false},
		"not for its labels":        {"the label depth", func(object) bool { return true }, nil, true},
		"a label that it needs":     {"the label team must be blue", func(labels object) bool { return true }, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), spaceBackup(labels)
			s.SetFailureText(http.StatusForbidden, tt.text)
			s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/namespaces") {
					return 0, false
				}
				stored, _ := kubetest.Meta(body)["labels"].(object)
				if tt.refuses(stored) {
					return http.StatusForbidden, false
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{})
			if tt.err {
				require.Contains(t, f.results.Errors.allMessages(), tt.text)
				require.Empty(t, f.results.Warnings.allMessages())
				require.Nil(t, s.Object(spacePath))
				return
			}
			require.Empty(t, f.results.Errors.allMessages())
			want := object{}
			for k, v := range labels {
				want[k] = v
			}
			warning := f.results.Warnings.allMessages()
			for _, k := range tt.out {
				delete(want, k)
				require.Contains(t, warning, "label "+k)
			}
			require.Contains(t, warning, `namespace "a" is created without label `+tt.out[0])
			require.Contains(t, warning, tt.text)
			got, _ := kubetest.Meta(s.Object(spacePath))["labels"].(object)
			if len(want)+len(got) > 0 {
				require.Equal(t, want, got)
			}
			require.NotNil(t, s.Object(spacePath+"/configmaps/c"))
		})
	}
}

// One label that admission refuses lost the whole update of a namespace.
func TestANamespaceIsUpdatedWithoutWhatAdmissionRefuses(t *testing.T) {
	stored := object{"team": "red", "depth": "1", "new": "x"}
	live := object{"team": "blue", "depth": "0", "tree": "a"}
	for name, tt := range map[string]struct {
		text    string
		managed []string // labels that admission lets nobody change
		want    object
		warning string // "" is that of an update that is lost
	}{
		"a label that the refusal names":  {`cannot set label "depth"`, []string{"depth"}, object{"team": "red", "depth": "0", "new": "x"}, `namespace "a" is updated without label depth: `},
		"a label that is only there":      {`cannot remove "tree"`, []string{"tree"}, object{"team": "red", "depth": "1", "new": "x", "tree": "a"}, `namespace "a" is updated without label tree: `},
		"two, and one is named":           {`the label new`, []string{"new", "tree"}, object{"team": "red", "depth": "1", "tree": "a"}, `namespace "a" is updated without label new, label tree: `},
		"a label that nobody names":       {"no", []string{"team"}, object{"team": "blue", "depth": "1", "new": "x"}, `namespace "a" is updated without label team: `},
		"not for its labels":              {"no", nil, live, ""},
		"every difference is the refused": {"no", []string{"team", "depth", "new", "tree"}, live, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), spaceBackup(stored)
			putSpace(s, live)
			s.SetFailureText(http.StatusForbidden, tt.text)
			s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
				if r.Method != http.MethodPatch || r.URL.Path != spacePath {
					return 0, false
				}
				labels, _ := kubetest.Meta(body)["labels"].(object)
				for _, key := range tt.managed {
					if value, changed := labels[key]; changed && value != live[key] {
						return http.StatusForbidden, false
					}
				}
				if len(tt.managed) == 0 {
					return http.StatusForbidden, false
				}
				return 0, false
			})
			f := runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
			require.Empty(t, f.results.Errors.allMessages())
			require.Equal(t, tt.want, kubetest.Meta(s.Object(spacePath))["labels"])
			require.Contains(t, f.results.Warnings.allMessages(), tt.text)
			if tt.warning == "" {
				require.Equal(t, []string{"a(failed)"}, f.list["v1/Namespace"])
				require.Contains(t, f.results.Warnings.allMessages(), `could not restore, Namespace "a" could not be updated: `)
				return
			}
			require.Equal(t, []string{"a(updated)"}, f.list["v1/Namespace"])
			require.Contains(t, f.results.Warnings.allMessages(), tt.warning)
			require.NotContains(t, f.results.Warnings.allMessages(), "could not")
		})
	}
}
