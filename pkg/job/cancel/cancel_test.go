package cancel_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/cancel"
)

func annotatedBackup(text string) *velerov1.Backup {
	return &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{holdfast.AnnotationCancel: text}}}
}

func TestWhatAPersonMightSet(t *testing.T) {
	for text, want := range map[string]string{
		`{"by":"alice","time":"2026-01-02T03:04:05Z"}`: "cancelled by alice",
		`{}`: "cancelled", "true": "cancelled", "True\t": "cancelled", "bob": "cancelled by bob",
		"{broken": "cancelled by {broken", "two\nlines\x00": "cancelled by two lines", `{"by":"a\nb"}`: "cancelled by a b",
	} {
		r, ok := cancel.CancelRequested(annotatedBackup(text))
		require.True(t, ok, text)
		require.Equal(t, want, r.Reason())
		require.True(t, cancel.IsCancelReason(r.Reason()))
	}
	for _, text := range []string{"", "false", "FALSE\t"} {
		_, ok := cancel.CancelRequested(annotatedBackup(text))
		require.False(t, ok, text)
	}
	_, ok := cancel.CancelRequested(&velerov1.Backup{})
	require.False(t, ok)
	require.False(t, cancel.IsCancelReason("cancelled bystander"))
	require.Equal(t, "cancelled; a b", cancel.CancelRequest{}.ReasonBut("a\nb"))
	require.True(t, cancel.IsCancelReason("cancelled; a b"))
	require.True(t, cancel.IsCancelReason(cancel.CancelRequest{By: "bob"}.ReasonBut("a")))
}

func FuzzRequested(f *testing.F) {
	for _, seed := range []string{"", "true", `{"by":"alice"}`, `{"by":1}`, "\xff\xfe", strings.Repeat("ä", 1000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := cancel.CancelRequested(annotatedBackup(text))
		if !ok {
			return
		}
		require.LessOrEqual(t, utf8.RuneCountInString(r.By), 256)
		require.NotContains(t, r.By, "\n")
		require.True(t, cancel.IsCancelReason(r.Reason()))
	})
}

func TestTheFirstRequestStays(t *testing.T) {
	b := &velerov1.Backup{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, cancel.WriteCancelRequest(b, cancel.CancelRequest{By: "alice", Time: at}))
	require.NoError(t, cancel.WriteCancelRequest(b, cancel.CancelRequest{By: "bob"}))
	r, ok := cancel.CancelRequested(b)
	require.True(t, ok)
	require.Equal(t, cancel.CancelRequest{By: "alice", Time: at}, r)

	b = annotatedBackup("false")
	require.NoError(t, cancel.WriteCancelRequest(b, cancel.CancelRequest{By: "bob"}))
	r, _ = cancel.CancelRequested(b)
	require.Equal(t, "bob", r.By)
}

func TestRequestAndCommitExcludeEachOther(t *testing.T) {
	b := annotatedBackup("alice")
	var asked *cancel.CancelError
	require.ErrorAs(t, cancel.SetCommitting(b, 3), &asked)
	require.Equal(t, "cancelled by alice", asked.Error())
	require.False(t, cancel.IsCommitting(b))

	b = &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	require.NoError(t, cancel.SetCommitting(b, 3))
	require.NoError(t, cancel.WriteCancelRequest(b, cancel.CancelRequest{By: "late"}))
	_, ok := cancel.CancelRequested(b)
	require.False(t, ok, "it came after the commit began")
	require.NoError(t, cancel.SetCommitting(b, 4), "a later holder goes on")
	require.Equal(t, "3 one", b.Annotations[holdfast.AnnotationCommitting])
	cancel.ClearCommitting(b)
	require.False(t, cancel.IsCommitting(b))
	cancel.ClearCommitting(&velerov1.Backup{})
}

func TestStages(t *testing.T) {
	for phase, want := range map[velerov1.BackupPhase]cancel.CancelStage{
		"": cancel.Waiting, velerov1.BackupPhaseNew: cancel.Waiting, velerov1.BackupPhaseQueued: cancel.Waiting,
		velerov1.BackupPhaseReadyToStart: cancel.Waiting, velerov1.BackupPhaseInProgress: cancel.Running,
		velerov1.BackupPhaseWaitingForPluginOperations: cancel.Running, velerov1.BackupPhaseFinalizing: cancel.Running,
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: cancel.Running,
		velerov1.BackupPhaseFinalizingPartiallyFailed:                 cancel.Running, velerov1.BackupPhaseFailedValidation: cancel.Ended,
		velerov1.BackupPhaseCompleted: cancel.Ended, velerov1.BackupPhaseFailed: cancel.Ended, velerov1.BackupPhaseDeleting: cancel.Ended,
	} {
		b := &velerov1.Backup{Status: velerov1.BackupStatus{Phase: phase}}
		require.Equal(t, want, cancel.BackupStage(b), phase)
	}
	for phase, want := range map[velerov1.RestorePhase]cancel.CancelStage{
		"": cancel.Waiting, velerov1.RestorePhaseInProgress: cancel.Running, velerov1.RestorePhaseFinalizing: cancel.Running,
		velerov1.RestorePhaseWaitingForPluginOperations: cancel.Running, velerov1.RestorePhaseFailed: cancel.Ended,
	} {
		r := &velerov1.Restore{Status: velerov1.RestoreStatus{Phase: phase}}
		require.Equal(t, want, cancel.RestoreStage(r), phase)
	}
	b, r := &velerov1.Backup{}, &velerov1.Restore{}
	b.Status.Phase, r.Status.Phase = velerov1.BackupPhaseInProgress, velerov1.RestorePhaseInProgress
	require.NoError(t, cancel.SetCommitting(b, 1))
	require.NoError(t, cancel.SetCommitting(r, 1))
	require.Equal(t, cancel.Closing, cancel.BackupStage(b))
	require.Equal(t, cancel.Closing, cancel.RestoreStage(r))
}

func TestCopiedAnnotationsDoNotCount(t *testing.T) {
	asked := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	require.NoError(t, cancel.WriteCancelRequest(asked, cancel.CancelRequest{By: "alice"}))
	_, ok := cancel.CancelRequested(asked)
	require.True(t, ok)
	asked.UID = "two"
	_, ok = cancel.CancelRequested(asked)
	require.False(t, ok, "another object was asked to stop")
	require.NoError(t, cancel.SetCommitting(asked.DeepCopy(), 1))
	require.NoError(t, cancel.WriteCancelRequest(asked, cancel.CancelRequest{By: "bob"}))
	r, ok := cancel.CancelRequested(asked)
	require.True(t, ok)
	require.Equal(t, cancel.CancelRequest{By: "bob", UID: "two"}, r)

	marked := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	require.NoError(t, cancel.SetCommitting(marked, 3))
	require.True(t, cancel.IsCommitting(marked))
	marked.UID = "two"
	require.False(t, cancel.IsCommitting(marked))
	require.NoError(t, cancel.SetCommitting(marked, 1))
	require.Equal(t, "1 two", marked.Annotations[holdfast.AnnotationCommitting])
	for _, text := range []string{"", "3", "two", "3 one"} {
		marked.Annotations[holdfast.AnnotationCommitting] = text
		require.False(t, cancel.IsCommitting(marked), text)
	}
}
