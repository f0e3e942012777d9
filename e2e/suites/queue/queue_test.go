package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a site with one bucket behind a gate that can hold a job in the middle of its work.
type bed struct {
	*site.Site
	bucket *site.Bucket
	gate   *gate.Gate
}

// TestRules shares one cluster among the scenarios about the order; two backups and two restores
// may run at once on it.
func TestRules(t *testing.T) {
	b := &bed{Site: site.Start(t, site.Config{Args: map[string][]string{
		"queue-scheduler": {"--concurrent-backups", "2", "--concurrent-restores", "2"}, "backup-runner": {"--jobs", "4"},
	}})}
	server := testbed.StartS3T(t)
	b.bucket = site.S3Bucket(t, server, "queue")
	b.gate = b.ReachS3(t, server, b.bucket)
	for _, scenario := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the example of the design", b.testExample},
		{"a restore that ignores running backups", b.restoreNow},
	} {
		began := time.Now()
		if !t.Run(scenario.name, scenario.run) {
			return // the next one would not start from a sound state
		}
		t.Logf("%s: %.1f s", scenario.name, time.Since(began).Seconds())
	}
}

// createNamespace creates a namespace with an object in it.
func (b *bed) createNamespace(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		b.Namespace(t, name)
		content := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "content"}, Data: map[string]string{"of": name}}
		require.NoError(t, b.Client.Create(t.Context(), content))
	}
}

// holdBackup keeps a backup in the middle of its work, once it runs, until release is called.
func (b *bed) holdBackup(t *testing.T, backup string) *gate.Hold {
	t.Helper()
	hold := b.gate.Hold(gate.Writes("backups/" + backup + "/parts/"))
	t.Cleanup(hold.Release)
	return hold
}

// submitBackup creates a backup and waits until it is in the queue, or past it.
func (b *bed) submitBackup(t *testing.T, name string, namespaces ...string) {
	t.Helper()
	b.Backup(t, name, b.bucket, namespaces...)
	b.History.Reaches(t, "Backup", name, "Queued")
}

// requireCompleted requires backups that complete.
func (b *bed) requireCompleted(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		b.BackupCompletes(t, name)
	}
}

// requireQueued requires backups that are still in the queue.
func (b *bed) requireQueued(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		backup := &velerov1.Backup{}
		require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, backup))
		require.Equal(t, velerov1.BackupPhaseQueued, backup.Status.Phase, name)
	}
}

// requirePass shows that a pass was made, with a place free: an unrelated backup runs.
func (b *bed) requirePass(t *testing.T, marker string) {
	t.Helper()
	b.createNamespace(t, marker)
	b.submitBackup(t, marker, marker)
	b.requireCompleted(t, marker)
}
