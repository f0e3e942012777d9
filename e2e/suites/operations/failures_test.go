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

// errorMessages are the errors of a backup's results file about a namespace of the backup's name.
func (b *bed) errorMessages(t *testing.T, backup string) []string {
	t.Helper()
	var results struct {
		Errors struct {
			Velero     []string
			Cluster    []string
			Namespaces map[string][]string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(b.readResults(t, backup)), &results))
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

// testFailures has operations fail beside others that do not.
func (b *bed) testFailures(t *testing.T) {
	const name = "failures"
	b.Namespace(t, name)
	b.controller.holdOperations(name + "/good")
	b.createOwnObject(t, name, "good", operationOrder{})
	b.createOwnObject(t, name, "bad", operationOrder{Fails: "the disk is full"})
	b.createVendorObject(t, name, "worse", operationOrder{Fails: "the tape broke"})
	b.createOwnObject(t, name, "unknown", operationOrder{Progress: forgets})
	b.createOwnObject(t, name, "unbegun", operationOrder{Start: fails})
	b.Backup(t, name, b.bucket, name)
	b.awaitWaiting(t, name, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed)
	require.Eventually(t, func() bool { return b.getBackup(t, name).Status.BackupItemOperationsFailed == 3 }, testbed.Patience, 50*time.Millisecond, "counted while others run")
	b.controller.releaseHeld(name + "/good")

	backup := b.awaitEnd(t, name, velerov1.BackupPhasePartiallyFailed, 1, 3)
	require.Equal(t, 4, backup.Status.Errors, b.readResults(t, name))
	file := b.readOperations(t, name)
	require.Len(t, file, 4)
	for _, w := range b.worksOf(t, name) {
		switch w.Spec.Item {
		case "good":
			requireCompleted(t, file, &w)
		case "unknown":
			b.requireFailed(t, name, file, &w, "")
		case "unbegun":
			require.NotContains(t, file, w.workID())
		default:
			b.requireFailed(t, name, file, &w, w.Spec.Order.Fails)
		}
	}
	stored := b.readTarball(t, name)
	require.NotContains(t, stored, "resources/configmaps/namespaces/failures/unbegun.json", "no operation, no item")
	for _, item := range []string{"configmaps/namespaces/failures/good", "configmaps/namespaces/failures/bad", "secrets/namespaces/failures/worse"} {
		require.Contains(t, stored, "resources/"+item+".json", "an operation that fails does not take its item with it")
	}
}

// timeRunsOut has operations that never end, whose actions answer in every way when they are asked
// to cancel.
func (b *bed) timeRunsOut(t *testing.T) {
	const name, timeout = "timeout", 3 * time.Second
	endless := func(cancel, progress workBehaviour) operationOrder {
		return operationOrder{Seconds: 1e6, Cancel: cancel, Progress: progress}
	}
	b.Namespace(t, name)
	b.createOwnObject(t, name, "obedient", endless("", ""))
	for _, cancel := range []workBehaviour{refuses, fails, hangs, ignores} {
		b.createOwnObject(t, name, string(cancel), endless(cancel, ""))
	}
	b.createOwnObject(t, name, "silent", endless("", hangs))
	b.createOwnObject(t, name, "confused", endless(refuses, fails))
	b.createVendorObject(t, name, "vendor", endless("", ""))
	b.createVendorObject(t, name, "vendor-fails", endless(fails, ""))
	b.createBackup(t, name, velerov1.BackupSpec{
		StorageLocation: b.bucket.Location, IncludedNamespaces: []string{name}, ItemOperationTimeout: metav1.Duration{Duration: timeout},
	})
	backup := b.awaitEnd(t, name, velerov1.BackupPhasePartiallyFailed, 0, 9)
	require.Equal(t, 9, backup.Status.Errors, b.readResults(t, name))
	file, asked := b.readOperations(t, name), b.calls.callsOf(t, "cancel", name)
	for _, w := range b.worksOf(t, name) {
		b.requireFailed(t, name, file, &w, "timed out after 3s")
		require.Len(t, asked[w.Spec.Item], 1, "%s is asked to cancel once", w.Spec.Item)
	}
}
