package volumes

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
)

// A claim is filled from its CSI snapshot, and its volume does not come back beside it, also where
// the volume information has no entry of it.
func TestClaimsThatAreFilledFromCSISnapshots(t *testing.T) {
	const csi = `{"pvName":"pv","pvcNamespace":"a","pvcName":"c","backupMethod":"CSISnapshot","pvInfo":{"reclaimPolicy":"Retain","labels":{"k":"v"}}}`
	for name, tt := range map[string]struct {
		info                      string
		off, keep, native         bool
		filled, reprovision, lost bool
	}{
		"with volume information":                   {info: csi, filled: true, reprovision: true},
		"without":                                   {filled: true, reprovision: true},
		"skipped, says the volume information":      {info: `{"pvName":"pv","skipped":true}`, filled: true, reprovision: true},
		"the feature is off":                        {info: csi, off: true, reprovision: true, lost: true},
		"the feature is off, no volume information": {off: true, reprovision: true, lost: true},
		"volumes are not wanted":                    {info: csi, keep: true, reprovision: true},
		"a native snapshot":                         {native: true},
		"moved": {info: `{"pvName":"pv","pvcNamespace":"a","pvcName":"c","backupMethod":"CSISnapshot","snapshotDataMoved":true}`,
			filled: true, reprovision: true},
	} {
		t.Run(name, func(t *testing.T) {
			from := Taken{CSI: !tt.off, Snapshotted: []types.NamespacedName{{Namespace: "a", Name: "c"}},
				Elsewhere: []volumedata.Data{{Method: volumedata.CSISnapshot, Namespace: "a", Claim: "c"}}}
			if tt.info != "" {
				from.Infos = make([]Info, 1)
				require.NoError(t, json.Unmarshal([]byte(tt.info), &from.Infos[0]))
			}
			if tt.native {
				from.Snapshots = []nativesnapshot.Snapshot{{Spec: nativesnapshot.Spec{PersistentVolumeName: "pv"},
					Status: nativesnapshot.Status{ProviderSnapshotID: "s", Phase: nativesnapshot.PhaseCompleted}}}
			}
			read := func(context.Context, manifest.Item) ([]byte, error) {
				return []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"a","name":"c"}}}`), nil
			}
			d, err := Decide(t.Context(), []manifest.Item{{Name: "pv"}}, read, from, !tt.keep)
			require.NoError(t, err)
			require.Equal(t, tt.filled, d.Filled("a", "c"))
			require.Equal(t, name == "moved", d.isMoved("a", "c"))
			require.Equal(t, tt.reprovision, d.Reprovision("pv"))
			require.Equal(t, tt.lost, d.Problem("pv") != "" || d.ClaimProblem("a", "c") != "")
			require.False(t, d.Filled("b", "c"))
			if tt.info == csi {
				policy, labels := d.Original("pv")
				require.Equal(t, "Retain", policy)
				require.Equal(t, map[string]string{"k": "v"}, labels)
			}
		})
	}
}
