package disturbance

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// claimTimeout is how long a silent runner keeps its jobs in these scenarios.
const claimTimeout = 5 * time.Second

// objects is how many ConfigMaps, and how many Secrets, each namespace holds.
const objects = 40

// bed is a site with two of every service, and what undisturbed jobs gave on it.
type bed struct {
	Site     *site.Site
	gate     *gate.Gate
	bucket   *site.Bucket
	messages jetstream.JetStream
	backups  map[string]calmBackup // by namespaces, joined with a comma
	restore  *velerov1.Restore
	expected []string // keys that stay in the bucket
}

// calmBackup is an undisturbed backup.
type calmBackup struct {
	Backup *velerov1.Backup
	stored map[string]string
	keys   []string
}

// sources are the namespaces that get backed up.
var sources = []string{"alpha", "beta", "gamma"}

func newBed(t *testing.T) *bed {
	t.Helper()
	server := testbed.StartS3T(t)
	runner := []string{"--claim-timeout", claimTimeout.String()}
	b := &bed{backups: map[string]calmBackup{}, Site: site.Start(t, site.Config{Replicas: 2, Args: map[string][]string{
		"backup-runner": runner, "restore-runner": runner, "deletion": append(runner, "--sweep-interval", "1s"),
		"queue-scheduler": {"--concurrent-backups", "3", "--concurrent-restores", "2"},
	}})}
	b.bucket = site.S3Bucket(t, server, "disturbed")
	b.gate = b.Site.ReachS3(t, server, b.bucket)
	connection, err := nats.Connect(b.Site.Fleet.NATSURL(), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	b.messages, err = jetstream.New(connection)
	require.NoError(t, err)
	for _, namespace := range sources {
		b.Site.Estate(t, namespace, objects, 2000)
	}
	for i, namespaces := range [][]string{{"alpha"}, {"beta"}, {"gamma"}, {"alpha", "beta"}} {
		b.runUndisturbed(t, "calm-"+string(rune('a'+i)), namespaces)
	}
	b.Site.Restore(t, "calm", "calm-a", "alpha", "calm")
	b.restore = b.Site.RestoreEnds(t, "calm")
	b.checkRestore(t, b.restore, "alpha", "calm")
	return b
}

// runUndisturbed runs an undisturbed backup, whose objects in the bucket are taken once everything else is
// swept.
func (b *bed) runUndisturbed(t *testing.T, name string, namespaces []string) {
	t.Helper()
	b.Site.Backup(t, name, b.bucket, namespaces...)
	backup := b.Site.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, backup.Status.FailureReason)
	require.Equal(t, (2*objects+3)*len(namespaces), backup.Status.Progress.ItemsBackedUp, "with each namespace, its account and the authority's ConfigMap")
	var keys []string
	require.Eventually(t, func() bool {
		keys = nil
		for _, key := range b.bucket.Keys(t) {
			if strings.HasPrefix(key, "backups/"+name+"/") {
				keys = append(keys, key)
			}
			if strings.Contains(key, name+"/parts/") {
				return false
			}
		}
		return true
	}, site.Patience, site.Look, "the parts of %s go", name)
	b.backups[strings.Join(namespaces, ",")] = calmBackup{Backup: backup, stored: b.bucket.Stored(t, name), keys: keys}
	b.expected = append(b.expected, keys...)
}

// checkBackup waits for a backup's end and wants what the undisturbed backup of the same namespaces
// gave.
func (b *bed) checkBackup(t *testing.T, name string, namespaces ...string) {
	t.Helper()
	backup, calm := b.Site.BackupEnds(t, name), b.backups[strings.Join(namespaces, ",")]
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s: %s", name, backup.Status.FailureReason)
	require.Zero(t, backup.Status.Errors)
	require.Equal(t, calm.Backup.Status.Warnings, backup.Status.Warnings)
	require.Equal(t, calm.Backup.Status.Progress, backup.Status.Progress)
	require.Equal(t, calm.stored, b.bucket.Stored(t, name))
	for _, key := range calm.keys {
		b.expected = append(b.expected, strings.ReplaceAll(key, calm.Backup.Name, name))
	}
}

// checkRestore requires everything from one namespace in the other, each object created and counted
// once.
func (b *bed) checkRestore(t *testing.T, restore *velerov1.Restore, from, to string) {
	t.Helper()
	require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, "%s: %s", restore.Name, restore.Status.FailureReason)
	require.Zero(t, restore.Status.Errors)
	if b.restore != nil {
		require.Equal(t, b.restore.Status.Progress, restore.Status.Progress)
	}
	want, err := b.Site.Data(t.Context(), from)
	require.NoError(t, err)
	require.Len(t, want, 2*objects)
	got, err := b.Site.Data(t.Context(), to)
	require.NoError(t, err)
	require.Subset(t, got, want)

	dir := "restores/" + restore.Name + "/"
	var list map[string][]string
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, dir+"restore-"+restore.Name+"-resource-list.json.gz"), &list))
	created := 0
	for _, kind := range []string{"v1/ConfigMap", "v1/Secret"} {
		for _, entry := range list[kind] {
			if strings.HasPrefix(entry, to+"/"+from+"-") && strings.HasSuffix(entry, "(created)") {
				created++
			}
		}
	}
	require.Equal(t, 2*objects, created, "%v", list)
	for _, key := range b.bucket.Keys(t) {
		if strings.HasPrefix(key, dir) && !strings.HasPrefix(key, dir+"records/") {
			b.expected = append(b.expected, key)
		}
	}
}

// disturbedJob is a backup and a restore under one name that were started together.
type disturbedJob struct {
	bed       *bed
	name      string
	namespace string // backed up
}

// startJob creates a backup of a namespace, and a restore of alpha into a namespace of the job's name.
func (b *bed) startJob(t *testing.T, name, namespace string) *disturbedJob {
	t.Helper()
	b.Site.Backup(t, name, b.bucket, namespace)
	b.Site.Restore(t, name, "calm-a", "alpha", name)
	return &disturbedJob{bed: b, name: name, namespace: namespace}
}

// startHeld starts a job and returns when both halves are in the middle of their work, held at the
// bucket until release is called.
func (b *bed) startHeld(t *testing.T, name, namespace string) (j *disturbedJob, release func()) {
	t.Helper()
	holds := []*gate.Hold{b.gate.Hold(gate.Writes("backups/" + name + "/parts/")), b.gate.Hold(gate.Writes("restores/" + name + "/"))}
	release = func() {
		for _, hold := range holds {
			hold.Release()
		}
	}
	t.Cleanup(release)
	j = b.startJob(t, name, namespace)
	for _, hold := range holds {
		site.AwaitHeld(t, hold)
	}
	return j, release
}

// requireEnd requires both halves to end like undisturbed ones.
func (j *disturbedJob) requireEnd(t *testing.T) {
	t.Helper()
	j.bed.checkBackup(t, j.name, j.namespace)
	j.bed.checkRestore(t, j.bed.Site.RestoreEnds(t, j.name), "alpha", j.name)
}

// requireCompleted requires both halves to end like undisturbed ones, each run once.
func (j *disturbedJob) requireCompleted(t *testing.T) {
	t.Helper()
	j.requireEnd(t)
	for _, kind := range []string{"Backup", "Restore"} {
		j.bed.Site.History.RanOnce(t, kind, j.name)
	}
}

// disturbanceEnd returns when a moment that began at a time is as long ago as a disturbance shall last.
func disturbanceEnd(t *testing.T, began time.Time, length time.Duration) {
	t.Helper()
	timer := time.NewTimer(length - time.Since(began))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
}

// disturbanceLength is how long a disturbance lasts: briefly in every run, a minute in the long suite.
func disturbanceLength(brief time.Duration) time.Duration {
	if os.Getenv("LONG_TESTS") != "" {
		return time.Minute
	}
	return brief
}

// requireSettled requires nothing in the bucket beside what the jobs published.
func (b *bed) requireSettled(t *testing.T) { b.bucket.Settles(t, b.expected) }
