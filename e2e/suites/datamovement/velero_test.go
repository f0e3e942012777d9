//go:build velero

package datamovement

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/csistorage"
	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Two clusters share a bucket: in one Holdfast moves the data of snapshots, in the other Velero's node-agent does, for Holdfast's
// requests. Each restores what the other stored, also after either has maintained the repositories.
func TestVeleroDataMovement(t *testing.T) {
	s3 := testbed.StartS3T(t)
	bucket := site.S3Bucket(t, s3, "default")
	own := startBed(t, s3, bucket)
	theirs := startBed(t, s3, bucket, "--volume-mover=velero")
	own.describe, theirs.describe = volumefiles.DescribeKept, volumefiles.DescribeKept
	volumefiles.SharePassword(t, own.Site, theirs.Site)
	agent := moverpods.StartAgent(t, theirs.Site, theirs.movers)

	want := map[string]map[string]map[string]string{}
	for name, b := range map[string]*bed{"ours": own, "theirs": theirs} {
		want[name] = b.createClaims(t, name, "data", csistorage.Late)
		b.runPod(t, name, csistorage.Late)
		b.createBackup(t, name, name)
		b.BackupCompletes(t, name)
		b.requireNothingLeft(t)
		b.requireStored(t, name, want[name])
	}
	exchange := func(t *testing.T, suffix string) {
		for name, b := range map[string]*bed{"ours": theirs, "theirs": own} {
			b.awaitSynced(t, name)
			b.Restore(t, name+suffix, name, name, name+suffix)
			b.addConsumer(t, name+suffix, csistorage.Late)
			b.requireRestored(t, name+suffix, name+suffix, want[name])
			b.requireNothingLeft(t)
		}
	}
	t.Run("exchanged", func(t *testing.T) { exchange(t, "-copy") })
	t.Run("maintained", func(t *testing.T) {
		for name := range want {
			require.Empty(t, volumefiles.Maintain(t, own.Site, bucket, name))
			agent.Maintain(t, name, bucket.Location)
		}
		exchange(t, "-later")
	})
	t.Run("deleted", func(t *testing.T) { own.deletesTheirs(t, theirs) })
}

// deletesTheirs has the data that Velero's node-agent stored go with the backup.
func (b *bed) deletesTheirs(t *testing.T, theirs *bed) {
	uploads := theirs.uploads(t, "theirs")
	require.NotEmpty(t, uploads)
	b.DeleteBackup(t, "theirs")
	for _, u := range uploads {
		require.Contains(t, volumefiles.RestoreSnapshot(t, b.Site, b.bucket, "theirs", u.Status.SnapshotID), "the repository does not have the snapshot")
	}
}

func (b *bed) awaitSynced(t *testing.T, backup string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: backup}, &velerov1.Backup{}) == nil
	}, site.Patience, site.Look, "backup %s is found in the bucket", backup)
}
