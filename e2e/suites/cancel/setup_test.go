// Package cancel holds scenarios in which people stop backups and restores that wait, run, hang or
// are about to end.
package cancel

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

const (
	// deadline is long enough for a runner on a busy machine to stop a job itself.
	deadline = 20 * time.Second
	// objects is how many ConfigMaps, and how many Secrets, the big namespace holds: jobs on it
	// take a while, as each part holds two.
	objects = 1000
	// inFlight is how many creates a restore that has just begun may be in the middle of. What is
	// half sent when a process is stopped is carried out when it goes on.
	inFlight = 16
)

// bed is a site with one of every service, so that it is known which process works.
type bed struct {
	*site.Site
	bucket *site.Bucket
	queue  queuev1.QueueServiceClient
	cli    *product.CLI
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Site: site.Start(t, site.Config{Args: map[string][]string{
		"backup-runner":   {"--claim-timeout=5s", "--part-items=2"},
		"restore-runner":  {"--claim-timeout=5s"},
		"queue-scheduler": {"--claim-timeout=5s", "--cancel-deadline=" + deadline.String()},
		"deletion":        {"--claim-timeout=5s", "--sweep-interval=1s"},
	}})}
	bucket, dir := site.FileBucket(t, "default")
	b.bucket = bucket
	b.ReachFiles(t, dir, bucket)
	b.Estate(t, "big", objects, 200)
	b.Estate(t, "tiny", 2, 100)
	b.queue = queuev1.NewQueueServiceClient(b.Dial(t, "queue-scheduler"))
	b.cli = b.CLI(t)
	return b
}

// getObject reads a backup or restore.
func getObject[T client.Object](t *testing.T, b *bed, name string, into T) T {
	t.Helper()
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, into))
	return into
}

// awaitStoring waits until a backup has stored some of what it collects.
func (b *bed) awaitStoring(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, key := range b.bucket.Keys(t) {
			if strings.HasPrefix(key, "backups/"+name+"/parts/") {
				return true
			}
		}
		return false
	}, site.Patience, site.Look, "backup %s stores parts", name)
}

// committedPhase is the phase of a backup in the bucket; empty when it holds none of that name.
func (b *bed) committedPhase(t *testing.T, name string) velerov1.BackupPhase {
	t.Helper()
	for _, key := range b.bucket.Keys(t) {
		if key == "backups/"+name+"/velero-backup.json" {
			var backup velerov1.Backup
			require.NoError(t, json.Unmarshal(b.bucket.Read(t, key), &backup))
			return backup.Status.Phase
		}
	}
	return ""
}

// claimEpoch of the claim of a job.
func claimEpoch(t *testing.T, o client.Object) int64 {
	t.Helper()
	c, _, err := claim.Parse(o)
	require.NoError(t, err)
	return c.Epoch
}

// free reports whether the claim of a job was taken from its holder, and has none.
func free(t *testing.T, o client.Object) bool {
	t.Helper()
	c, _, err := claim.Parse(o)
	require.NoError(t, err)
	return c.Owner == "" && c.Epoch == 2
}

// freezeService stops the only process of a service where it is; the function lets it go on.
func (b *bed) freezeService(t *testing.T, service string) (thaw func()) {
	t.Helper()
	m := b.Fleet.Of(service)[0]
	require.NoError(t, m.Signal(syscall.SIGSTOP))
	return func() { require.NoError(t, m.Signal(syscall.SIGCONT)) }
}
