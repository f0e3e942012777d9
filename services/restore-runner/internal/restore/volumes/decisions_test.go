package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
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
			d, err := Decide(t.Context(), []manifest.Item{{Name: "pv"}}, read, Taken{Infos: infos, Snapshots: snapshots}, !tt.keep)
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
	_, err := Decide(ctx, []manifest.Item{{Name: "pv"}}, func(context.Context, manifest.Item) ([]byte, error) { return nil, ctx.Err() }, Taken{}, true)
	require.ErrorIs(t, err, context.Canceled)
}

// Decisions from volume information or a native snapshot are kept; data that is not restored is a
// problem of its claim or pod as well.
func TestDataElsewhere(t *testing.T) {
	read := func(_ context.Context, i manifest.Item) ([]byte, error) {
		return []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"a","name":"of-` + i.Name + `"}}}`), nil
	}
	data := func(method volumedata.Method, claim string) volumedata.Data {
		return volumedata.Data{Method: method, Namespace: "a", Claim: claim}
	}
	from := Taken{
		Infos:     []Info{{PVName: "skipped"}, {PVName: "csi", BackupMethod: "CSISnapshot"}},
		Snapshots: []nativesnapshot.Snapshot{{Spec: nativesnapshot.Spec{PersistentVolumeName: "native"}, Status: nativesnapshot.Status{ProviderSnapshotID: "s", Phase: "Completed"}}},
		Elsewhere: []volumedata.Data{
			data(volumedata.PodVolumeBackup, "of-native"), data(volumedata.PodVolumeBackup, "of-skipped"), data(volumedata.CSISnapshot, "of-csi"),
			data(volumedata.DataUpload, "of-unknown"), data(volumedata.CSISnapshot, "without-volume"),
			{Method: volumedata.PodVolumeBackup, Namespace: "a", Pod: "p", PodVolume: "v"},
			{Method: volumedata.CSISnapshot, Namespace: "a", Snapshot: "of-some-claim"}, {Method: volumedata.CSISnapshot, Namespace: "z", Snapshot: "s"},
			{Method: volumedata.CSISnapshot, Namespace: "z", Snapshot: "s"},
		},
	}
	items := []manifest.Item{{Name: "native"}, {Name: "skipped"}, {Name: "csi"}, {Name: "unknown"}, {Name: "plain"}}
	for _, wanted := range []bool{true, false} {
		d, err := Decide(t.Context(), items, read, from, wanted)
		require.NoError(t, err)
		require.Empty(t, d.ClaimProblem("a", "of-native"))
		require.Empty(t, d.ClaimProblem("a", "of-skipped"))
		require.Empty(t, d.ClaimProblem("a", "of-plain"))
		require.Empty(t, d.ClaimProblem("b", "of-unknown"))
		require.False(t, d.Reprovision("native") || d.Reprovision("skipped") || d.Reprovision("plain"))
		require.Equal(t, wanted, d.Reprovision("unknown"), "its volume may be gone: the claim gets a new one")
		require.Equal(t, wanted, d.isMoved("a", "of-unknown"))
		require.Empty(t, d.Problem("unknown"))
		require.Equal(t, wanted, d.ClaimProblem("a", "without-volume") != "")
		require.Contains(t, d.PodProblems("a", "p"), "v")
		require.Empty(t, d.PodProblems("b", "p"))
		if wanted {
			require.Equal(t, []string{"z/s"}, d.Unclaimed())
		} else {
			require.Empty(t, d.Unclaimed())
		}
	}
}
