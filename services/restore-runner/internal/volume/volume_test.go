package volume

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
)

func TestDecisions(t *testing.T) {
	pv := func(policy string) string {
		return `{"spec":{"persistentVolumeReclaimPolicy":"` + policy + `","claimRef":{"namespace":"a","name":"c"}}}`
	}
	tests := map[string]struct {
		info        string // entry of the volume information, "" for none
		body        string // "" when it cannot be read
		keep        bool   // restorePVs: false
		reprovision bool
		problem     bool
		snapshot    string // its phase, "" for none
		restored    bool   // from the snapshot
	}{
		"retained":                         {body: pv("Retain")},
		"deleted with its claim":           {body: pv("Delete"), reprovision: true},
		"skipped, retained":                {info: `{"skipped":true,"pvInfo":{"reclaimPolicy":"Retain"}}`, body: pv("Retain")},
		"skipped, deleted with its claim":  {info: `{"skipped":true,"pvInfo":{"reclaimPolicy":"Delete"}}`, reprovision: true},
		"file system backup":               {info: `{"backupMethod":"PodVolumeBackup"}`, body: pv("Retain"), reprovision: true, problem: true},
		"CSI snapshot":                     {info: `{"backupMethod":"CSISnapshot"}`, body: pv("Delete"), reprovision: true, problem: true},
		"CSI snapshot, volumes not wanted": {info: `{"backupMethod":"CSISnapshot"}`, body: pv("Retain"), keep: true, reprovision: true},
		"snapshot":                         {info: `{"backupMethod":"NativeSnapshot"}`, body: pv("Delete"), snapshot: "Completed", restored: true},
		"snapshot of an old backup":        {body: pv("Delete"), snapshot: "Completed", restored: true},
		"snapshot that failed":             {info: `{"backupMethod":"NativeSnapshot"}`, body: pv("Retain"), snapshot: "Failed", reprovision: true, problem: true},
		"snapshot that is not listed":      {info: `{"backupMethod":"NativeSnapshot"}`, body: pv("Retain"), reprovision: true, problem: true},
		"snapshot, volumes not wanted":     {info: `{"backupMethod":"NativeSnapshot"}`, body: pv("Delete"), keep: true, snapshot: "Completed"},
		"not a volume":                     {body: `[]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var infos []Info
			if tt.info != "" {
				var info Info
				require.NoError(t, json.Unmarshal([]byte(tt.info), &info))
				info.PVName = "pv"
				infos = []Info{{}, info}
			}
			read := func(context.Context, manifest.Item) ([]byte, error) {
				if tt.body == "" {
					return nil, errors.New("unreadable")
				}
				return []byte(tt.body), nil
			}
			var snapshots []nativesnapshot.Snapshot
			if tt.snapshot != "" {
				snapshots = []nativesnapshot.Snapshot{{Spec: nativesnapshot.Spec{PersistentVolumeName: "pv"},
					Status: nativesnapshot.Status{ProviderSnapshotID: "snap", Phase: tt.snapshot}}}
			}
			d, err := Decide(t.Context(), []manifest.Item{{Name: "pv"}}, read, infos, snapshots, !tt.keep)
			require.NoError(t, err)
			require.Equal(t, tt.reprovision, d.Reprovision("pv"))
			require.Equal(t, tt.problem, d.Problem("pv") != "")
			made, restored := d.Snapshot("pv")
			require.Equal(t, tt.restored, restored)
			require.Equal(t, tt.restored, made.Status.ProviderSnapshotID == "snap")
			if tt.body != "" && tt.body != "[]" {
				namespace, claim := d.Claim("pv")
				require.Equal(t, []string{"a", "c"}, []string{namespace, claim})
			}
			require.False(t, d.Reprovision("other"))
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Decide(ctx, []manifest.Item{{Name: "pv"}}, func(context.Context, manifest.Item) ([]byte, error) { return nil, ctx.Err() }, nil, nil, true)
	require.ErrorIs(t, err, context.Canceled)
}
