package collect

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// apartEstate has three secrets in a storage of their own, at that revision. The cluster is at
// 1000.
func apartEstate(own int64) *kubetest.Server {
	api := kubetest.New(append(slices.Clone(kinds), kubetest.Kind{Version: "v1", Kind: "Secret", Resource: "secrets", Namespaced: true, Own: own})...)
	api.Add("namespaces", kubetest.Object{Name: "a"})
	api.Add("configmaps", kubetest.Object{Namespace: "a", Name: "cm"})
	api.Add("pods", kubetest.Object{Namespace: "a", Name: "p"})
	for _, name := range []string{"s1", "s2", "s3"} {
		api.Add("secrets", kubetest.Object{Namespace: "a", Name: name})
	}
	return api
}

// rangesOf returns the recorded ranges of a unit.
func rangesOf(records []checkpoint.Record, unit string) (out []checkpoint.Range) {
	for i := range records {
		for _, r := range records[i].Ranges {
			if r.Unit == unit {
				out = append(out, r)
			}
		}
	}
	return out
}

// A kind in an etcd of its own has no state at the cut's revision yet, or one from long ago: the
// first cost ten minutes of retries and all objects, the second all that changed since, without an
// error.
func TestAKindInAStorageOfItsOwn(t *testing.T) {
	for name, own := range map[string]int64{"behind the cut": 50, "ahead of the cut": 5000} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, apartEstate(own), velerov1.BackupSpec{})
			res, got := s.runJob(t)
			require.Equal(t, 3, got.countOf("secrets"))
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			ranges := rangesOf(got.records, "secrets")
			require.Len(t, ranges, 1)
			require.Equal(t, cut.ReasonApart, ranges[0].Reason)
			require.NotEqual(t, "1000", ranges[0].Revision)
			require.Equal(t, []string{"1000"}, s.job.Cut.Revisions())
			require.Empty(t, rangesOf(got.records, "configmaps")[0].Reason)
		})
	}
}

// A runner that may list a kind in some namespaces only reads its revision in all of them: nothing
// of the kind is backed up.
func TestAKindThatMayBeListedInItsNamespaceOnly(t *testing.T) {
	for name, own := range map[string]int64{"in the cluster's storage": 0, "ahead of the cut": 5000} {
		t.Run(name, func(t *testing.T) {
			api := kubetest.New(append(slices.Clone(kinds), kubetest.Kind{Version: "v1", Kind: "Secret", Resource: "secrets", Namespaced: true, Own: own, Narrow: true})...)
			api.Add("namespaces", kubetest.Object{Name: "a"})
			api.Add("secrets", kubetest.Object{Namespace: "a", Name: "s"})
			s := newSetup(t, api, velerov1.BackupSpec{}, "a")
			res, got := s.runJob(t)
			require.Zero(t, res.Errors, got.notesAt(joblog.Error))
			require.Equal(t, 1, got.countOf("secrets"))
			require.Equal(t, own != 0, rangesOf(got.records, "secrets/a")[0].Reason == cut.ReasonApart)
		})
	}
}

// What actions ask for by name is compared with the cut, too.
func TestAnAdditionalItemInAStorageOfItsOwn(t *testing.T) {
	for _, own := range []int64{50, 5000} {
		s := newSetup(t, apartEstate(own), velerov1.BackupSpec{IncludedResources: []string{"pods"}}, "a")
		s = s.addActions(additionalAction("a.io/asks", selectResources("pods"), true, func(action.Identity) []string { return []string{"secrets a/s2"} }))
		res, got := s.runJob(t)
		require.Zero(t, res.Errors, got.notesAt(joblog.Error))
		require.Contains(t, got.items, "resources/secrets/namespaces/a/s2.json")
	}
}

// A cluster that is written to meanwhile is newer at each read, and no kind of it apart.
func TestABusyClusterIsOneStorage(t *testing.T) {
	api := newEstateServer()
	api.Before = func(s *kubetest.Server, _ *http.Request) { s.Advance() }
	s := newSetup(t, api, velerov1.BackupSpec{})
	_, got := s.runJob(t)
	for i := range got.records {
		for _, r := range got.records[i].Ranges {
			require.Empty(t, r.Reason, r.Unit)
			require.Equal(t, s.job.Cut.Revisions()[0], r.Revision, r.Unit)
		}
	}
}
