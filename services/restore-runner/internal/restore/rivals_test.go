package restore_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// newMergedBackup is a backup of two namespaces that are mapped to one.
func newMergedBackup() (*backup, velerov1.RestoreSpec) {
	b := &backup{}
	for i, namespace := range []string{"one", "two"} {
		b.addObject("namespaces", "v1", "Namespace", "", namespace, object{"metadata": object{"labels": object{"team": namespace}}})
		b.addObject("configmaps", "v1", "ConfigMap", namespace, "same", object{"data": object{"k": "v"}})
		b.addObject("configmaps", "v1", "ConfigMap", namespace, "differs", object{"data": object{"k": namespace}})
		b.addObject("configmaps", "v1", "ConfigMap", namespace, namespace, nil)
		b.addObject("serviceaccounts", "v1", "ServiceAccount", namespace, "default", object{"imagePullSecrets": []any{object{"name": fmt.Sprint("pull", i)}}})
	}
	return b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"one": "t", "two": "t"}}
}

// Of two objects that are mapped to one name the later one was a warning that names neither, or
// with policy update it overwrote the first; which of them was later was left to chance.
func TestTwoNamespacesMappedToOneReportTheirCollisions(t *testing.T) {
	for _, policy := range []velerov1.PolicyType{"", velerov1.PolicyTypeUpdate} {
		for name, history := range map[string]outcome.History{"undisturbed": {}, "after a takeover": {Resumed: true}} {
			t.Run(string(policy)+" "+name, func(t *testing.T) {
				s := kubetest.Start(t)
				b, spec := newMergedBackup()
				spec.ExistingResourcePolicy = policy
				f := runRestore(t, s, b, spec, func(c *restore.Config) { c.History = &history })
				require.Equal(t, `configmaps t/differs: configmaps one/differs and configmaps two/differs of the backup are both mapped to namespace "t": the first is kept, this one is not restored`,
					f.results.Errors.allMessages())
				require.Equal(t, object{"k": "one"}, s.Object("/api/v1/namespaces/t/configmaps/differs")["data"])
				require.Equal(t, []string{"t/differs(created)", "t/differs(failed)", "t/one(created)", "t/same(created)", "t/same(skipped)", "t/two(created)"},
					slices.Sorted(slices.Values(f.list["v1/ConfigMap"])))
				require.Len(t, s.Object("/api/v1/namespaces/t/serviceaccounts/default")["imagePullSecrets"], 2, "accounts are merged")
				require.Equal(t, "one", kubetest.Meta(s.Object("/api/v1/namespaces/t"))["labels"].(object)["team"])
				require.Equal(t, `namespaces t: namespaces "one" and "two" of the backup are both mapped to "t", which has the labels and annotations of the first`,
					f.results.Warnings.allMessages())
			})
		}
	}
}

// A name that the first of them does not take is the other's.
func TestACollisionNeedsAFirst(t *testing.T) {
	s := kubetest.Start(t)
	b, spec := newMergedBackup()
	b.bodies["resources/configmaps/namespaces/one/differs.json"] = []byte("{")
	f := runRestore(t, s, b, spec)
	require.Contains(t, f.results.Errors.allMessages(), "decode")
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Equal(t, object{"k": "two"}, s.Object("/api/v1/namespaces/t/configmaps/differs")["data"])
}

// While the first of them waited for its owner, without which it is refused, the other took the
// name: with policy update it was overwritten without an error.
func TestTheFirstKeepsItsNameWhileItWaitsForItsOwner(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	addDefinition(b)
	b.addObject("widgets.example.com", "example.com/v1", "Widget", "one", "w", nil)
	b.addObject("secrets", "v1", "Secret", "one", "s", object{"data": object{"k": "one"}}, ownerBy("example.com/v1", "Widget", "w", true))
	b.addObject("secrets", "v1", "Secret", "two", "s", object{"data": object{"k": "two"}})
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if isCreate(r, "secrets") && body["data"].(object)["k"] == "one" && kubetest.Meta(body)["ownerReferences"] == nil {
			return http.StatusForbidden, false
		}
		return 0, false
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{NamespaceMapping: map[string]string{"one": "t", "two": "t"}, ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
	require.Contains(t, f.results.Errors.allMessages(), "secrets one/s and secrets two/s of the backup are both mapped")
	require.Equal(t, 1, f.recorder.Counts().Errors)
	require.Equal(t, object{"k": "one"}, s.Object("/api/v1/namespaces/t/secrets/s")["data"])
	require.Equal(t, []string{"t/s(created)", "t/s(failed)"}, slices.Sorted(slices.Values(f.list["v1/Secret"])))
}
