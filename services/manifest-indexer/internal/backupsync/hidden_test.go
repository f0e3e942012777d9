package backupsync

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// eventList keeps Events with the name of what they relate to: client-go counts those as one that differ in their text alone.
type eventList []string

func (e *eventList) Eventf(_, related runtime.Object, _, reason, _, note string, args ...any) {
	*e = append(*e, related.(*corev1.ObjectReference).Name+": "+reason+" "+fmt.Sprintf(note, args...))
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
				require.Contains(t, text, `b: BackupNotShown backup "b" is not shown: a backup of location "`+tt.owner+`" has its name`)
			}
		})
	}
}

// A backup that cannot be read is reported once, and again when the reason is another one.
func TestABackupThatCannotBeReadIsReportedOnce(t *testing.T) {
	b := newBed(t)
	var told eventList
	b.s.Events = &told
	for _, text := range []string{"{", "[]"} {
		b.store.Set(layout.BackupMetadata("broken"), []byte(text))
		for range 3 {
			b.runPass()
			b.clock.Step(time.Minute)
		}
	}
	require.Len(t, told, 2)
	require.Contains(t, told[0], `broken: BackupNotSynced backup "broken" in the bucket cannot be read`)
}
