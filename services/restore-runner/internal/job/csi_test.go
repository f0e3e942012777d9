package job_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// A successor fills claims exactly where the first holder planned to, whatever features it has: a
// claim of the plan must not come back empty.
func TestWhetherClaimsAreFilledFollowsThePlan(t *testing.T) {
	for _, planned := range []bool{true, false} {
		t.Run(fmt.Sprintf("planned %t", planned), func(t *testing.T) {
			b := newBench(t)
			named := object{"velero.io/volume-snapshot-name": "s"}
			b.storeBackup(t, []entry{
				{"persistentvolumeclaims", "v1", "PersistentVolumeClaim", "a", "c", object{"metadata": object{"labels": named, "annotations": named}, "spec": object{}}, nil},
				{"volumesnapshots.snapshot.storage.k8s.io", "snapshot.storage.k8s.io/v1", "VolumeSnapshot", "a", "s",
					object{"status": object{"boundVolumeSnapshotContentName": "gone"}}, nil},
			})
			b.createRestore(t, true)
			ctx, stop := context.WithCancel(t.Context())
			die := sync.OnceFunc(func() { stop(); b.claims.LoseClaim() })
			dying := b.config
			dying.CSI = planned
			var leave func()
			dying.REST, leave = b.cluster.OpenFaultyDoor(func(r *http.Request, _ map[string]any) (int, bool) {
				if r.Method != http.MethodPost {
					return 0, false
				}
				die() // at its first write, which comes after the plan
				return http.StatusForbidden, false
			})
			_ = newRunner(dying).Run(ctx, "r", "uid-r")
			leave()

			b.config.Claims, b.config.CSI = &jobtest.Holder{Name: "next"}, !planned
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			results := b.readGzip(t, layout.RestoreResults("r"))
			claim := b.cluster.Object("/api/v1/namespaces/a/persistentvolumeclaims/c")
			if planned {
				require.Contains(t, results, "CSI snapshot a/s of the claim: the VolumeSnapshot or its content is not in the backup")
				require.Nil(t, claim)
				return
			}
			require.Contains(t, results, "--features EnableCSI is off")
			require.NotNil(t, claim)
		})
	}
}
