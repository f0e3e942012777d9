package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/archive/volumedata"
)

// A claim whose data is in a PodVolumeBackup gets a new volume, which its Pod fills, whether or not volumes
// are wanted; data that comes back with the volume itself is not filled in again.
func TestClaimsThatAreFilledWithTheirPods(t *testing.T) {
	const info = `{"pvName":"pv","pvcNamespace":"a","pvcName":"c","backupMethod":"PodVolumeBackup"}`
	for name, tt := range map[string]struct {
		info                      string
		failed, keep, native      bool
		filled, reprovision, lost bool
	}{
		"with volume information":              {info: info, filled: true, reprovision: true},
		"volumes are not wanted":               {info: info, keep: true, filled: true, reprovision: true},
		"without":                              {filled: true, reprovision: true},
		"skipped, says the volume information": {info: `{"pvName":"pv","skipped":true}`},
		"a native snapshot":                    {native: true},
		"it failed":                            {info: info, failed: true, reprovision: true, lost: true},
		"it failed, no volume information":     {failed: true, reprovision: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			files := &volumedata.FileSnapshot{ID: "s", Uploader: "kopia", Phase: velerov1.PodVolumePhaseCompleted}
			if tt.failed {
				files.ID = ""
			}
			from := Taken{Elsewhere: []volumedata.Data{{Method: volumedata.PodVolumeBackup, Namespace: "a", Claim: "c", Pod: "p", PodVolume: "v", Files: files}}}
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
			require.Equal(t, tt.filled, d.PodBackup("a", "p", "v", "c") != nil)
			require.Equal(t, tt.reprovision, d.Reprovision("pv"))
			require.Equal(t, tt.lost, d.Problem("pv") != "" || d.ClaimProblem("a", "c") != "")
			require.Nil(t, d.PodBackup("b", "p", "v", "c"))
			require.Nil(t, d.PodBackup("a", "p", "v", "other"))
		})
	}
}

// A backup of Velero may have several snapshots of one claim: all Pods that mount it agree on one.
func TestPodsAgreeOnTheSnapshotOfAClaim(t *testing.T) {
	taken := func(pod, id string) volumedata.Data {
		return volumedata.Data{Method: volumedata.PodVolumeBackup, Namespace: "a", Claim: "c", Pod: pod, PodVolume: "v",
			Files: &volumedata.FileSnapshot{ID: id, Uploader: "kopia"}}
	}
	from := Taken{Elsewhere: []volumedata.Data{taken("p", ""), taken("p", "first"), taken("q", "second")}, Items: itemsOf(
		manifest.Item{Kind: "Pod", Namespace: "a", Name: "r", References: []manifest.Reference{{Relation: reference.Claims, Name: "c"}, {Relation: reference.Mounts, Name: "c"}}},
		manifest.Item{Kind: "Pod", Namespace: "b", Name: "s", References: []manifest.Reference{{Relation: reference.Claims, Name: "c"}}},
		manifest.Item{Group: "apps", Kind: "Deployment", Namespace: "a", Name: "d", References: []manifest.Reference{{Relation: reference.Claims, Name: "c"}}},
	)}
	d, err := Decide(t.Context(), nil, nil, from, true)
	require.NoError(t, err)
	for _, pod := range []string{"p", "q", "r"} {
		require.Equal(t, "first", d.PodBackup("a", pod, "v", "c").ID)
	}
	require.Empty(t, d.ClaimProblem("a", "c"), "one that failed does not matter beside it")
	pods, filled := d.Mounts("a", "c")
	require.True(t, filled)
	require.Equal(t, []string{"p", "q", "r"}, pods)
}

func itemsOf(items ...manifest.Item) func(context.Context) iter.Seq2[manifest.Item, error] {
	return func(context.Context) iter.Seq2[manifest.Item, error] {
		return func(yield func(manifest.Item, error) bool) {
			for _, i := range items {
				if !yield(i, nil) {
					return
				}
			}
		}
	}
}

func TestItemsThatCannotBeListedEndTheDecision(t *testing.T) {
	broken := errors.New("broken")
	from := Taken{Elsewhere: []volumedata.Data{{Method: volumedata.PodVolumeBackup, Namespace: "a", Claim: "c", Pod: "p", PodVolume: "v",
		Files: &volumedata.FileSnapshot{ID: "s", Uploader: "kopia"}}}}
	from.Items = func(context.Context) iter.Seq2[manifest.Item, error] {
		return func(yield func(manifest.Item, error) bool) { yield(manifest.Item{}, broken) }
	}
	_, err := Decide(t.Context(), nil, nil, from, true)
	require.ErrorIs(t, err, broken)
}
