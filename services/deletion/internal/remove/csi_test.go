package remove

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit/limittest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

// drivers are the CSI drivers of a cluster.
type drivers struct {
	unserved bool
	stuck    error
	shown    int // backups whose items were shown
	of       []csisnapshot.Owner
}

func (d *drivers) Served(context.Context) (bool, error) { return !d.unserved, nil }

func (d *drivers) DiscardAll(_ context.Context, of csisnapshot.Owner) error {
	d.of = append(d.of, of)
	return nil
}

func (d *drivers) Gone(context.Context, csisnapshot.Owner) error { return d.stuck }

func (d *drivers) Run(context.Context, itemaction.Job) error {
	d.shown++
	return nil
}

// A backup goes once the drivers have removed its CSI snapshots, and is kept until then: no other
// object names them.
func TestCSISnapshotsGoBeforeTheirBackup(t *testing.T) {
	snapshots := `[{"pvcName":"data","pvcNamespace":"n","pvName":"pv","backupMethod":"CSISnapshot","csiSnapshotInfo":{"snapshotHandle":"h"}}]`
	for name, tc := range map[string]struct {
		drivers drivers
		info    string
		shown   int
		refused string
	}{
		"removed":           {info: snapshots, shown: 1},
		"none":              {info: `[]`},
		"not removed":       {drivers: drivers{stuck: csisnapshot.ErrRemains}, info: snapshots, shown: 1, refused: "CSI snapshots: not removed by its driver yet"},
		"no snapshot API":   {drivers: drivers{unserved: true}, info: snapshots, refused: "1 CSI snapshot"},
		"other data beside": {info: `[{"pvcName":"c","pvcNamespace":"n","backupMethod":"PodVolumeBackup","pvbInfo":{"snapshotHandle":"k"}},` + snapshots[1:], refused: "1 PodVolumeBackup"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
			b.r.CSI, b.r.CSIActions = &tc.drivers, &tc.drivers
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			b.store.Set(layout.BackupVolumeInfo("b"), limittest.PackedText(t, tc.info))
			require.Equal(t, Done, b.processRequest("d"))
			require.Equal(t, tc.shown, tc.drivers.shown)
			if tc.refused == "" {
				require.Nil(t, b.readBackup())
				require.Equal(t, []csisnapshot.Owner{{Name: "b", UID: "b-uid"}}, tc.drivers.of)
				return
			}
			require.NotNil(t, b.readBackup())
			d := b.readRequest("d")
			require.Len(t, d.Status.Errors, 1)
			require.Contains(t, d.Status.Errors[0], tc.refused)
			_, kept := b.store.Bytes(layout.BackupTarball("b"))
			require.True(t, kept)
		})
	}
}
