//go:build velero

package podvolume

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/moverpods"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/e2e/harness/volumefiles"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Two clusters share a bucket: in one Holdfast moves the data of volumes, in the other Velero's node-agent does, for Holdfast's
// requests. Each restores what the other stored, also after either has maintained the repositories.
func TestVeleroNodeAgent(t *testing.T) {
	s3 := testbed.StartS3T(t)
	bucket := site.S3Bucket(t, s3, "default")
	own := startBed(t, s3, bucket)
	agent := startBed(t, s3, bucket, "--volume-mover=velero")
	volumefiles.SharePassword(t, own.Site, agent.Site)
	published := moverpods.StartAgent(t, agent.Site, agent.movers)

	want := map[string]map[string]map[string]string{}
	for name, b := range map[string]*bed{"ours": own, "theirs": agent} {
		dirs := b.createApplication(t, name, nil)
		want[name] = map[string]map[string]string{"data": volumefiles.DescribeKept(t, dirs["data"]), "scratch": volumefiles.DescribeKept(t, dirs["scratch"])}
		b.createBackup(t, name)
		b.BackupCompletes(t, name)
		b.requireRecorded(t, name, "data", "scratch")
	}
	exchange := func(t *testing.T, suffix string) {
		for name, b := range map[string]*bed{"ours": agent, "theirs": own} {
			b.awaitSynced(t, name)
			restored := b.restore(t, name, name+suffix)
			for volume, entries := range want[name] {
				require.Equal(t, entries, volumefiles.DescribeKept(t, restored[volume]), "volume %s of %s", volume, name)
			}
		}
	}
	t.Run("exchanged", func(t *testing.T) { exchange(t, "-copy") })
	for name := range want {
		require.Empty(t, volumefiles.Maintain(t, own.Site, bucket, name))
		published.Maintain(t, name, bucket.Location)
	}
	t.Run("maintained", func(t *testing.T) { exchange(t, "-later") })
}

func (b *bed) awaitSynced(t *testing.T, backup string) {
	t.Helper()
	require.Eventually(t, func() bool {
		found := &velerov1.PodVolumeBackupList{}
		err := b.Client.List(t.Context(), found, client.InNamespace(site.Server), client.MatchingLabels{velerov1.LabelBackupName: backup})
		return err == nil && len(found.Items) == 2 &&
			b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: backup}, &velerov1.Backup{}) == nil
	}, 2*site.Patience, site.Look, "backup %s is found in the bucket", backup)
}
