package backupsync

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

type eventList []string

func (e *eventList) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	*e = append(*e, reason+" "+fmt.Sprintf(note, args...))
}

// A backup whose name another location has was passed over without a word.
func TestABackupWithANameOfAnotherLocationIsReported(t *testing.T) {
	for name, tt := range map[string]struct {
		owner   string // of the object of the name
		same    bool   // the two locations are one place
		unready bool   // its directory holds no backup
		told    int
	}{
		"another location's": {owner: "other", told: 1}, "its own": {owner: longName}, "one place": {owner: "other", same: true},
		"being written": {owner: "other", unready: true}, "of a location that is gone": {owner: "gone", told: 1},
	} {
		t.Run(name, func(t *testing.T) {
			object := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", Labels: map[string]string{velerov1.LabelStorageLocation: velerov1.LabelValue(tt.owner)}}}
			other := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "other", UID: "other"}}
			place := velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "one"}}
			other.Spec.StorageType = place
			b := newBed(t, object, other)
			loc := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: longName}}
			require.NoError(t, kube.Update(t.Context(), b.client, b.client, loc, func(l *velerov1.BackupStorageLocation) error {
				l.Spec.StorageType = place
				if !tt.same {
					l.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: "two"}
				}
				return nil
			}))
			var told eventList
			b.s.Events = &told
			b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
			if tt.unready {
				require.NoError(t, b.store.Delete(t.Context(), layout.BackupMetadata("b")))
			}
			for range 3 {
				b.runPass()
				b.clock.Step(time.Minute)
			}
			require.Len(t, told, tt.told)
			for _, text := range told {
				require.Contains(t, text, `BackupNotShown backup "b" is not shown: a backup of location "`+tt.owner+`" has its name`)
			}
		})
	}
}
