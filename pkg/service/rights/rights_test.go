package rights_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

func ruleTexts(service string, o rights.Options) []string {
	var out []string
	for _, q := range rights.RulesOf(service, o).Requests("server") {
		out = append(out, q.String())
	}
	return out
}

func TestRequestsAreWhatTheRulesAllow(t *testing.T) {
	require.Equal(t, []string{
		"get backupstoragelocations.velero.io in server", "get secrets in server",
		"create events.events.k8s.io in server", "patch events.events.k8s.io in server",
		"get backups.velero.io in server", "get restores.velero.io in server", "list backups.velero.io in server", "list restores.velero.io in server",
		"watch backups.velero.io in server", "watch restores.velero.io in server", "patch backups.velero.io in server", "patch restores.velero.io in server",
		"get leases.coordination.k8s.io in server",
		"list podvolumebackups.velero.io in server", "list podvolumerestores.velero.io in server", "list datauploads.velero.io in server", "list datadownloads.velero.io in server",
		"patch podvolumebackups.velero.io in server", "patch podvolumerestores.velero.io in server", "patch datauploads.velero.io in server", "patch datadownloads.velero.io in server",
		`get namespaces "kube-system"`, "post /holdfast.operation.v1.OperationService/*",
		"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
	}, ruleTexts("async-operation-monitor", rights.Options{Reviews: true}))
	require.Empty(t, ruleTexts("unknown", rights.Options{Reviews: true}))
}

// A right that two rules grant, as create of Leases of a runner, is one request.
func TestEveryRequestIsThereOnce(t *testing.T) {
	for _, service := range rights.Services() {
		seen := map[string]bool{}
		for _, text := range ruleTexts(service, rights.Options{CSI: true, Hooks: true, Reviews: true}) {
			require.False(t, seen[text], "%s: %s", service, text)
			seen[text] = true
		}
	}
}

func TestOptionsDecideWhichRulesThereAre(t *testing.T) {
	plain, all := ruleTexts("backup-runner", rights.Options{}), ruleTexts("backup-runner", rights.Options{CSI: true, Hooks: true, Reviews: true})
	for _, text := range []string{"create pods/exec", "get volumesnapshots.snapshot.storage.k8s.io", "create tokenreviews.authentication.k8s.io"} {
		require.NotContains(t, plain, text)
		require.Contains(t, all, text)
	}
	require.Subset(t, all, plain)
	require.Contains(t, ruleTexts("restore-runner", rights.Options{}), "update */finalizers.*")
}

// Files of volumes are data of users, which a service that removes snapshots has no need to read.
func TestDeletionMayNotReadFilesOfVolumes(t *testing.T) {
	require.Contains(t, ruleTexts("deletion", rights.Options{Reviews: true}), "post /holdfast.volume.v1.VolumeService/ForgetSnapshots")
	for _, service := range rights.Services() {
		for _, path := range []string{"*", "ListFiles", "ReadFile"} {
			require.NotContains(t, ruleTexts(service, rights.Options{CSI: true, Hooks: true, Reviews: true}), "post /holdfast.volume.v1.VolumeService/"+path, service)
		}
	}
}
