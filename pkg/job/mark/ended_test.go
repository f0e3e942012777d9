package mark_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

type recorder []string

func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	*r = append(*r, kind+" "+reason+" "+action+": "+fmt.Sprintf(note, args...))
}

func TestTheEndIsRecordedWithItsReason(t *testing.T) {
	for want, obj := range map[string]client.Object{
		"Normal Completed End: 7 items, 1 warnings, 0 errors": &velerov1.Backup{Status: velerov1.BackupStatus{
			Phase: velerov1.BackupPhaseCompleted, Progress: &velerov1.BackupProgress{TotalItems: 7, ItemsBackedUp: 7}, Warnings: 1,
		}},
		"Warning Failed End: the bucket is away (0 items, 0 warnings, 1 errors)": &velerov1.Backup{Status: velerov1.BackupStatus{
			Phase: velerov1.BackupPhaseFailed, FailureReason: "the bucket is away", Errors: 1,
		}},
		"Warning FailedValidation End: a; b": &velerov1.Backup{Status: velerov1.BackupStatus{
			Phase: velerov1.BackupPhaseFailedValidation, ValidationErrors: []string{"a", "b"},
		}},
		"Normal Completed End: 3 items, 0 warnings, 0 errors": &velerov1.Restore{Status: velerov1.RestoreStatus{
			Phase: velerov1.RestorePhaseCompleted, Progress: &velerov1.RestoreProgress{TotalItems: 4, ItemsRestored: 3},
		}},
		"Warning PartiallyFailed End: 0 items, 0 warnings, 2 errors": &velerov1.Restore{Status: velerov1.RestoreStatus{
			Phase: velerov1.RestorePhasePartiallyFailed, Errors: 2,
		}},
	} {
		var events recorder
		mark.RecordEnd(&events, obj)
		require.Equal(t, recorder{want}, events)
		mark.RecordEnd(nil, obj)
	}
}

func TestOnlyTheEndIsRecorded(t *testing.T) {
	var events recorder
	mark.RecordEnd(&events, &velerov1.Backup{Status: velerov1.BackupStatus{Phase: velerov1.BackupPhaseInProgress}})
	mark.RecordEnd(&events, &velerov1.Restore{Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseWaitingForPluginOperations}})
	mark.RecordEnd(&events, &velerov1.Schedule{})
	require.Empty(t, events)
}

// The API server refuses an Event with a longer note, and it would be lost.
func TestALongReasonFitsIntoAnEvent(t *testing.T) {
	var events recorder
	mark.RecordEnd(&events, &velerov1.Backup{Status: velerov1.BackupStatus{Phase: velerov1.BackupPhaseFailed, FailureReason: strings.Repeat("☃", 2000)}})
	require.Len(t, events, 1)
	require.LessOrEqual(t, len(strings.SplitN(events[0], ": ", 2)[1]), 1024)
	require.True(t, strings.HasSuffix(events[0], "☃"))
}
