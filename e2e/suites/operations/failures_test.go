package operations

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// messages are the errors of a backup's results file about a namespace of the backup's name.
func (b *bed) messages(t *testing.T, backup string) []string {
	t.Helper()
	var results struct {
		Errors struct {
			Velero     []string
			Cluster    []string
			Namespaces map[string][]string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(b.results(t, backup)), &results))
	require.Empty(t, append(results.Errors.Velero, results.Errors.Cluster...), "errors are filed with their item's namespace")
	return results.Errors.Namespaces[backup]
}

func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// failures has operations fail beside others that do not.
func (b *bed) failures(t *testing.T) {
	const name = "failures"
	b.Namespace(t, name)
	b.controller.hold(name + "/good")
	b.own(t, name, "good", order{})
	b.own(t, name, "bad", order{Fails: "the disk is full"})
	b.vendor(t, name, "worse", order{Fails: "the tape broke"})
	b.own(t, name, "unknown", order{Progress: forgets})
	b.own(t, name, "unbegun", order{Start: fails})
	b.Backup(t, name, b.bucket, name)
	b.waits(t, name, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed)
	require.Eventually(t, func() bool { return b.get(t, name).Status.BackupItemOperationsFailed == 3 }, testbed.Patience, 50*time.Millisecond, "counted while others run")
	b.controller.release(name + "/good")

	backup := b.ends(t, name, velerov1.BackupPhasePartiallyFailed, 1, 3)
	require.Equal(t, 4, backup.Status.Errors, b.results(t, name))
	file := b.operations(t, name)
	require.Len(t, file, 4)
	for _, w := range b.worksOf(t, name) {
		switch w.Spec.Item {
		case "good":
			requireCompleted(t, file, &w)
		case "unknown":
			b.requireFailed(t, name, file, &w, "")
		case "unbegun":
			require.NotContains(t, file, w.id())
		default:
			b.requireFailed(t, name, file, &w, w.Spec.Order.Fails)
		}
	}
	stored := b.stored(t, name)
	require.NotContains(t, stored, "resources/configmaps/namespaces/failures/unbegun.json", "no operation, no item")
	for _, item := range []string{"configmaps/namespaces/failures/good", "configmaps/namespaces/failures/bad", "secrets/namespaces/failures/worse"} {
		require.Contains(t, stored, "resources/"+item+".json", "an operation that fails does not take its item with it")
	}
}

// timeRunsOut has operations that never end, whose actions answer in every way when they are asked
// to cancel.
func (b *bed) timeRunsOut(t *testing.T) {
	const name, timeout = "timeout", 3 * time.Second
	endless := func(cancel, progress behaviour) order {
		return order{Seconds: 1e6, Cancel: cancel, Progress: progress}
	}
	b.Namespace(t, name)
	b.own(t, name, "obedient", endless("", ""))
	for _, cancel := range []behaviour{refuses, fails, hangs, ignores} {
		b.own(t, name, string(cancel), endless(cancel, ""))
	}
	b.own(t, name, "silent", endless("", hangs))
	b.own(t, name, "confused", endless(refuses, fails))
	b.vendor(t, name, "vendor", endless("", ""))
	b.vendor(t, name, "vendor-fails", endless(fails, ""))
	b.create(t, name, velerov1.BackupSpec{
		StorageLocation: b.bucket.Location, IncludedNamespaces: []string{name}, ItemOperationTimeout: metav1.Duration{Duration: timeout},
	})
	backup := b.ends(t, name, velerov1.BackupPhasePartiallyFailed, 0, 9)
	require.Equal(t, 9, backup.Status.Errors, b.results(t, name))
	file, asked := b.operations(t, name), b.calls.of(t, "cancel", name)
	for _, w := range b.worksOf(t, name) {
		b.requireFailed(t, name, file, &w, "timed out after 3s")
		require.Len(t, asked[w.Spec.Item], 1, "%s is asked to cancel once", w.Spec.Item)
	}
}
