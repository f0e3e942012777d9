package partwriter_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/objmeta"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// Who has what becomes of the data of a claim: its stored snapshot, the claim itself where the data is moved, and the
// later decision on its volume for all others, also those that another backup's data came back to.
func TestTheEntryOfAClaim(t *testing.T) {
	rules := partwriter.NewVolumeRules(&velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "u"}}, true)
	for name, tc := range map[string]struct {
		meta string
		want *checkpoint.VolumeInfo
	}{
		"a snapshot": {`"labels":{"velero.io/volume-snapshot-name":"vs","velero.io/backup-name":"b"},"annotations":{"velero.io/volume-snapshot-name":"vs"}`, nil},
		"a moved snapshot": {`"labels":{"velero.io/volume-snapshot-name":"vs","velero.io/backup-name":"b"},"annotations":{"velero.io/volume-snapshot-name":"vs","velero.io/data-upload-name":"velero/b-1"}`,
			&checkpoint.VolumeInfo{PVCName: "c", PVCNamespace: "a", PVName: "pv", Method: checkpoint.MethodCSI, DataMoved: true, Result: checkpoint.Failed,
				Movement: &checkpoint.MovementInfo{DataMover: "velero", Uploader: "kopia", OperationID: "du-u.cu"}}},
		"another backup's": {`"labels":{"velero.io/volume-snapshot-name":"vs","velero.io/backup-name":"old"},"annotations":{"velero.io/data-upload-name":"velero/old-1"}`,
			&checkpoint.VolumeInfo{PVCName: "c", PVCNamespace: "a", PVName: "pv", Pending: true}},
	} {
		t.Run(name, func(t *testing.T) {
			meta := `{"name":"c","namespace":"a","uid":"cu",` + tc.meta + `}`
			raw := []byte(`{"metadata":` + meta + `,"spec":{"volumeName":"pv"}}`)
			var m objmeta.Meta
			require.NoError(t, objmeta.Decode([]byte(meta), &m))
			entries, info := rules.Of(plan.Claims, &m, raw)
			require.Empty(t, entries)
			require.Equal(t, tc.want, info)
		})
	}
}
