package leftover_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/leftover"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// A file of operations that is damaged, or absent, set the counters of operations to zero, or to those
// that came before the damage.
func TestCountersOfOperationsWithoutTheirFile(t *testing.T) {
	whole := packed(t, mixed)
	for name, c := range map[string]struct {
		file []byte
		// stored are attempted, completed and failed in the metadata file of the backup, object those on
		// the object, which are newer.
		stored, object, want []int
	}{
		"read":                 {whole, []int{5, 0, 0}, []int{5, 2, 1}, []int{5, 3, 2}},
		"absent":               {nil, []int{5, 2, 1}, []int{5, 2, 1}, []int{5, 2, 1}},
		"absent, metadata old": {nil, []int{5, 0, 0}, []int{5, 2, 1}, []int{5, 2, 1}},
		"none":                 {packed(t, "[]\n"), []int{5, 2, 1}, []int{5, 2, 1}, []int{5, 2, 1}},
		"junk":                 {[]byte("junk"), []int{5, 2, 1}, []int{5, 2, 1}, []int{5, 2, 3}},
		"junk, metadata old":   {[]byte("junk"), []int{5, 0, 0}, []int{5, 2, 1}, []int{5, 2, 3}},
		"junk, none":           {[]byte("junk"), []int{0, 0, 0}, []int{0, 0, 0}, []int{0, 0, 0}},
		"junk, not counted":    {[]byte("junk"), []int{1, 2, 4}, []int{1, 2, 4}, []int{1, 2, 4}},
		"cut":                  {whole[:len(whole)-8], []int{5, 2, 0}, []int{5, 2, 0}, []int{5, 2, 3}},
		"damaged at its end":   {packed(t, mixed[:len(mixed)-1]), []int{5, 2, 0}, []int{5, 2, 0}, []int{5, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			backup, restore := &velerov1.Backup{}, &velerov1.Restore{}
			backup.Name, backup.UID, restore.Name, restore.UID = "b", "u", "b", "u"
			bs, rs := &backup.Status, &restore.Status
			bs.BackupItemOperationsAttempted, bs.BackupItemOperationsCompleted, bs.BackupItemOperationsFailed = c.object[0], c.object[1], c.object[2]
			rs.RestoreItemOperationsAttempted, rs.RestoreItemOperationsCompleted, rs.RestoreItemOperationsFailed = c.object[0], c.object[1], c.object[2]
			look := func(j *leftover.Job) *leftover.Outcome {
				store := memstore.New()
				if c.file != nil {
					store.Set(layout.BackupItemOperations("b"), c.file)
					store.Set(layout.RestoreItemOperations("b"), c.file)
				}
				j.Store, j.Dir = store, t.TempDir()
				o, err := j.Look(t.Context())
				require.NoError(t, err)
				require.NoError(t, o.Close())
				return o
			}
			end := velerov1.BackupStatus{BackupItemOperationsAttempted: c.stored[0], BackupItemOperationsCompleted: c.stored[1], BackupItemOperationsFailed: c.stored[2]}
			look(leftover.Backup(backup)).CountBackup(&end)
			require.Equal(t, c.want, []int{end.BackupItemOperationsAttempted, end.BackupItemOperationsCompleted, end.BackupItemOperationsFailed})
			look(leftover.Restore(restore)).CountRestore(rs)
			require.Equal(t, c.want, []int{rs.RestoreItemOperationsAttempted, rs.RestoreItemOperationsCompleted, rs.RestoreItemOperationsFailed})
		})
	}
}
