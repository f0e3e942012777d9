// Package shared lets two clusters back up into one bucket under the same names.
package shared

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rounds is how often both clusters try the same name at the same moment, on each kind of bucket.
const rounds = 4

// TestTwoClustersOnOneBucket requires that of two backups with one name one gets it and the other
// reports that it did not, at any moment, and that nothing in the bucket is ever of both.
func TestTwoClustersOnOneBucket(t *testing.T) {
	p := newPair(t)
	t.Run("at once, on files", func(t *testing.T) { p.atOnce(t, p.files) })
	t.Run("at once, on S3", func(t *testing.T) { p.atOnce(t, p.s3) })
	t.Run("while the first writes parts", p.duringParts)
	t.Run("before the first has reserved the name", p.beforeReserve)
	t.Run("while the first commits", p.duringCommit)
}

// sharedCluster is one of the two clusters.
type sharedCluster struct {
	*site.Site
	name    string
	cluster string          // UID of kube-system
	objects map[string]bool // UIDs of what a backup takes
	gate    *gate.Gate      // to the S3 bucket
}

// clusterPair is both clusters and the buckets they share.
type clusterPair struct {
	members   [2]*sharedCluster
	files, s3 *site.Bucket
}

func newPair(t *testing.T) *clusterPair {
	t.Helper()
	server := testbed.StartS3T(t)
	p := &clusterPair{s3: site.S3Bucket(t, server, "shared-s3")}
	var dir string
	p.files, dir = site.FileBucket(t, "shared-files")
	for i, name := range []string{"first", "second"} {
		s := site.Start(t, site.Config{Args: map[string][]string{
			"deletion": {"--sweep-interval", "1s"}, "manifest-indexer": {"--backup-sync-period", "1s"}, "queue-scheduler": {"--concurrent-backups", "3"},
		}})
		m := &sharedCluster{Site: s, name: name, gate: s.ReachS3(t, server, p.s3)}
		s.ReachFiles(t, dir, p.files)
		s.Estate(t, "shop", 20+5*i, 2000) // unlike in number, so that counts differ
		m.readUIDs(t, "shop")
		p.members[i] = m
	}
	return p
}

// atOnce lets both clusters create a backup of the same name at the same moment, several times.
func (p *clusterPair) atOnce(t *testing.T, bucket *site.Bucket) {
	for round := range rounds {
		name := fmt.Sprintf("%s-2026010100000%d", bucket.Location, round)
		start := make(chan struct{})
		var group sync.WaitGroup
		errs := make([]error, len(p.members))
		for i, m := range p.members {
			group.Go(func() {
				<-start
				errs[i] = m.Client.Create(t.Context(), newScheduled(name, bucket))
			})
		}
		close(start)
		group.Wait()
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		if winner, loser := p.requireWinner(t, bucket, name); round == 0 {
			p.testDeletions(t, bucket, name, winner, loser)
		}
	}
}

// requireWinner requires that one of the two backups of that name got it and the other did not.
func (p *clusterPair) requireWinner(t *testing.T, bucket *site.Bucket, name string) (winner, loser *sharedCluster) {
	t.Helper()
	winner, loser = p.members[0], p.members[1]
	if winner.BackupEnds(t, name).Status.Phase != velerov1.BackupPhaseCompleted {
		winner, loser = loser, winner
	}
	checkWon(t, winner, bucket, name)
	checkLost(t, loser, name)
	t.Logf("%s: the %s cluster got the name", name, winner.name)
	return winner, loser
}

// newScheduled is a Backup as a Schedule makes it.
func newScheduled(name string, bucket *site.Bucket) *velerov1.Backup {
	return &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name, Labels: map[string]string{velerov1.LabelScheduleName: bucket.Location}},
		Spec:       velerov1.BackupSpec{StorageLocation: bucket.Location, IncludedNamespaces: []string{"shop"}},
	}
}

// testDeletions requires that the loser can delete its failed backup, after which it has the winner's,
// and that the winner's deletion clears both.
func (p *clusterPair) testDeletions(t *testing.T, bucket *site.Bucket, name string, winner, loser *sharedCluster) {
	t.Helper()
	before := keysUnder(bucket.Digests(t), name)
	failed := loser.BackupEnds(t, name)
	loser.DeleteBackup(t, name)
	seen := &velerov1.Backup{}
	require.Eventually(t, func() bool {
		return loser.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, seen) == nil && seen.UID != failed.UID
	}, site.Patience, site.Look, "the loser finds the winner's backup in the bucket")
	own := winner.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, seen.Status.Phase)
	require.Equal(t, own.Status.Progress, seen.Status.Progress)
	require.True(t, own.Status.CompletionTimestamp.Equal(seen.Status.CompletionTimestamp))
	require.Equal(t, before, keysUnder(bucket.Digests(t), name), "untouched")
	checkWon(t, winner, bucket, name)

	winner.DeleteBackup(t, name)
	require.Empty(t, keysUnder(bucket.Digests(t), name))
	require.Eventually(t, func() bool { return loser.isAbsent(t, name) }, site.Patience, site.Look, "gone on the other cluster, too")
}

// duringParts lets the second cluster try, fail, sweep and delete while the first is in the middle
// of its work.
func (p *clusterPair) duringParts(t *testing.T) {
	p.testHeld(t, "parts", func(name string) string { return "backups/" + name + "/parts/" })
}

// duringCommit is the same at the last moment.
func (p *clusterPair) duringCommit(t *testing.T) {
	p.testHeld(t, "commit", func(name string) string { return "backups/" + name + "/velero-backup.json" })
}

func (p *clusterPair) testHeld(t *testing.T, name string, at func(string) string) {
	t.Helper()
	first, second := p.members[0], p.members[1]
	hold := first.gate.Hold(gate.Writes(at(name)))
	t.Cleanup(hold.Release)
	first.Backup(t, name, p.s3, "shop")
	<-hold.Reached()
	second.Backup(t, name, p.s3, "shop")
	checkLost(t, second, name)
	before := keysUnder(p.s3.Digests(t), name)
	second.awaitSweeps(t)
	second.DeleteBackup(t, name)
	second.awaitSweeps(t)
	for key, digest := range before {
		require.Equal(t, digest, keysUnder(p.s3.Digests(t), name)[key], "%s was touched", key)
	}
	hold.Release()
	checkWon(t, first, p.s3, name)
}

// beforeReserve lets the second cluster run a whole backup while the first one's request to reserve
// the name is on its way.
func (p *clusterPair) beforeReserve(t *testing.T) {
	const name = "reserve"
	first, second := p.members[0], p.members[1]
	hold := first.gate.Hold(gate.Writes("backups/" + name + "/holdfast-owner.json"))
	t.Cleanup(hold.Release)
	first.Backup(t, name, p.s3, "shop")
	<-hold.Reached()
	second.Backup(t, name, p.s3, "shop")
	checkWon(t, second, p.s3, name)
	hold.Release()
	checkLost(t, first, name)
	checkWon(t, second, p.s3, name)
}

// awaitSweeps waits until three rounds of sweeping began after now: what is gone is swept when the
// second in a row finds it so.
func (m *sharedCluster) awaitSweeps(t *testing.T) {
	t.Helper()
	listings := func(r gate.Request) bool { return r.Method == "LIST" && strings.HasPrefix(r.Key, "restores/") }
	seen := m.gate.Seen(listings)
	require.Eventually(t, func() bool { return m.gate.Seen(listings) >= seen+3 }, site.Patience, site.Look, "sweeps")
}
