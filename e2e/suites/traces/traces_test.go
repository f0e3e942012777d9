//go:build jaeger

package traces

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/jaeger"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// TestTraces asks Jaeger once for each job, and finds one trace of it across the services.
func TestTraces(t *testing.T) {
	j := jaeger.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", j.Endpoint)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
	runner := []string{"--claim-timeout", "5s"}
	s := site.Start(t, site.Config{Counts: map[string]int{"backup-runner": 2}, Args: map[string][]string{"backup-runner": runner}})
	server := testbed.StartS3T(t)
	bucket := site.S3Bucket(t, server, "traced")
	proxy := s.ReachS3(t, server, bucket)
	s.Estate(t, "shop", 50, 500)

	backup := takenOver(t, s, proxy, bucket)
	tree := awaitTrace(t, j, "queue-scheduler", string(backup.UID), "after another attempt")
	hasPath(t, tree, "queue backup [queue-scheduler]", "admit backup [queue-scheduler]", "backup [backup-runner] after another attempt", "collect [backup-runner]")
	hasPath(t, tree, "queue backup [queue-scheduler]", "admit backup [queue-scheduler]", "publish backup.run [queue-scheduler]")

	restore := s.Restore(t, "again", backup.Name, "shop", "copy")
	require.Equal(t, velerov1.RestorePhaseCompleted, s.RestoreEnds(t, restore.Name).Status.Phase)
	tree = awaitTrace(t, j, "queue-scheduler", string(restore.UID), "restore [restore-runner]")
	hasPath(t, tree, "validate restore [queue-scheduler]", "publish restore.run [queue-scheduler]", "process restore.run [restore-runner]", "restore [restore-runner]")
	require.NotContains(t, tree, " failed")
	require.NotContains(t, tree, "lost")

	request := &velerov1.DeleteBackupRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "delete"}, Spec: velerov1.DeleteBackupRequestSpec{BackupName: backup.Name},
	}
	require.NoError(t, s.Client.Create(t.Context(), request))
	require.Eventually(t, func() bool {
		return client.IgnoreNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(backup), &velerov1.Backup{})) == nil &&
			s.Client.Get(t.Context(), client.ObjectKeyFromObject(backup), &velerov1.Backup{}) != nil
	}, site.Patience, site.Look, "the backup is deleted")
	tree = awaitTrace(t, j, "deletion", string(request.UID), "\n")
	hasPath(t, tree, "process deletion.run [deletion]", "deletion [deletion]")
	require.NotContains(t, tree, "lost")
}

// takenOver runs a backup whose runner is killed while it writes.
func takenOver(t *testing.T, s *site.Site, proxy *gate.Gate, bucket *site.Bucket) *velerov1.Backup {
	t.Helper()
	hold := proxy.Hold(gate.Writes("taken"))
	s.Backup(t, "taken", bucket, "shop")
	site.AwaitHeld(t, hold)
	backup := &velerov1.Backup{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: "taken"}, backup))
	held, found, err := claim.Parse(backup)
	require.NoError(t, err)
	require.True(t, found)
	for _, m := range s.Fleet.Members {
		if m.GRPC == held.Address {
			m.Kill()
		}
	}
	hold.Release()
	backup = s.BackupEnds(t, "taken")
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase)
	last, _, err := claim.Parse(backup)
	require.NoError(t, err)
	require.NotEqual(t, held.Owner, last.Owner)
	return backup
}

// awaitTrace waits until the only trace about an object has a text, and returns its tree.
func awaitTrace(t *testing.T, j *jaeger.Jaeger, service, uid, text string) (tree string) {
	t.Helper()
	var traces []jaeger.Trace
	require.Eventually(t, func() bool { // spans are sent in batches
		var err error
		traces, err = j.Find(t.Context(), service, uid)
		require.NoError(t, err)
		if len(traces) == 0 {
			return false
		}
		next := traces[0].Tree()
		settled := next == tree
		tree = next
		return settled && strings.Contains(tree, text)
	}, time.Minute, time.Second, "%s of %s about %s", text, service, uid)
	require.Len(t, traces, 1, "one trace for each job")
	t.Log("\n" + tree)
	return tree
}

// hasPath requires lines, each of which is below the one before.
func hasPath(t *testing.T, tree string, path ...string) {
	t.Helper()
	var depths []int
	for line := range strings.Lines(tree) {
		text := strings.TrimLeft(strings.TrimSuffix(line, "\n"), " ")
		depth := len(line) - len(strings.TrimLeft(line, " "))
		for len(depths) > 0 && depths[len(depths)-1] >= depth {
			depths = depths[:len(depths)-1]
		}
		if len(depths) < len(path) && text == path[len(depths)] {
			depths = append(depths, depth)
			if len(depths) == len(path) {
				return
			}
		}
	}
	require.Failf(t, "no such path", "%v in\n%s", path, tree)
}
