package mark_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
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
		r, ok := mark.CancelRequested(annotatedBackup(text))
		require.True(t, ok, text)
		require.Equal(t, want, r.Reason())
		require.True(t, mark.IsCancelReason(r.Reason()))
	}
	for _, text := range []string{"", "false", "FALSE\t"} {
		_, ok := mark.CancelRequested(annotatedBackup(text))
		require.False(t, ok, text)
	}
	_, ok := mark.CancelRequested(&velerov1.Backup{})
	require.False(t, ok)
	require.False(t, mark.IsCancelReason("cancelled bystander"))
	require.Equal(t, "cancelled; a b", mark.CancelRequest{}.ReasonBut("a\nb"))
	require.True(t, mark.IsCancelReason("cancelled; a b"))
	require.True(t, mark.IsCancelReason(mark.CancelRequest{By: "bob"}.ReasonBut("a")))
}

func FuzzRequested(f *testing.F) {
	for _, seed := range []string{"", "true", `{"by":"alice"}`, `{"by":1}`, "\xff\xfe", strings.Repeat("ä", 1000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := mark.CancelRequested(annotatedBackup(text))
		if !ok {
			return
		}
		require.LessOrEqual(t, utf8.RuneCountInString(r.By), 256)
		require.NotContains(t, r.By, "\n")
		require.True(t, mark.IsCancelReason(r.Reason()))
	})
}

func TestTheFirstRequestStays(t *testing.T) {
	b := &velerov1.Backup{}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, mark.WriteCancelRequest(b, mark.CancelRequest{By: "alice", Time: at}))
	require.NoError(t, mark.WriteCancelRequest(b, mark.CancelRequest{By: "bob"}))
	r, ok := mark.CancelRequested(b)
	require.True(t, ok)
	require.Equal(t, mark.CancelRequest{By: "alice", Time: at}, r)

	b = annotatedBackup("false")
	require.NoError(t, mark.WriteCancelRequest(b, mark.CancelRequest{By: "bob"}))
	r, _ = mark.CancelRequested(b)
	require.Equal(t, "bob", r.By)
}

func TestRequestAndCommitExcludeEachOther(t *testing.T) {
	b := annotatedBackup("alice")
	var asked *mark.CancelError
	require.ErrorAs(t, mark.SetCommitting(b, 3), &asked)
	require.Equal(t, "cancelled by alice", asked.Error())
	require.False(t, mark.IsCommitting(b))

	b = &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	require.NoError(t, mark.SetCommitting(b, 3))
	require.NoError(t, mark.WriteCancelRequest(b, mark.CancelRequest{By: "late"}))
	_, ok := mark.CancelRequested(b)
	require.False(t, ok, "it came after the commit began")
	require.NoError(t, mark.SetCommitting(b, 4), "a later holder goes on")
	require.Equal(t, "3 one", b.Annotations[holdfast.AnnotationCommitting])
	mark.ClearCommitting(b)
	require.False(t, mark.IsCommitting(b))
	mark.ClearCommitting(&velerov1.Backup{})
}

func TestStages(t *testing.T) {
	for phase, want := range map[velerov1.BackupPhase]mark.CancelStage{
		"": mark.StageWaiting, velerov1.BackupPhaseNew: mark.StageWaiting, velerov1.BackupPhaseQueued: mark.StageWaiting,
		velerov1.BackupPhaseReadyToStart: mark.StageWaiting, velerov1.BackupPhaseInProgress: mark.StageRunning,
		velerov1.BackupPhaseWaitingForPluginOperations: mark.StageRunning, velerov1.BackupPhaseFinalizing: mark.StageRunning,
		velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed: mark.StageRunning,
		velerov1.BackupPhaseFinalizingPartiallyFailed:                 mark.StageRunning, velerov1.BackupPhaseFailedValidation: mark.StageEnded,
		velerov1.BackupPhaseCompleted: mark.StageEnded, velerov1.BackupPhaseFailed: mark.StageEnded, velerov1.BackupPhaseDeleting: mark.StageEnded,
	} {
		b := &velerov1.Backup{Status: velerov1.BackupStatus{Phase: phase}}
		require.Equal(t, want, mark.BackupStage(b), phase)
	}
	for phase, want := range map[velerov1.RestorePhase]mark.CancelStage{
		"": mark.StageWaiting, velerov1.RestorePhaseInProgress: mark.StageRunning, velerov1.RestorePhaseFinalizing: mark.StageRunning,
		velerov1.RestorePhaseWaitingForPluginOperations: mark.StageRunning, velerov1.RestorePhaseFailed: mark.StageEnded,
	} {
		r := &velerov1.Restore{Status: velerov1.RestoreStatus{Phase: phase}}
		require.Equal(t, want, mark.RestoreStage(r), phase)
	}
	b, r := &velerov1.Backup{}, &velerov1.Restore{}
	b.Status.Phase, r.Status.Phase = velerov1.BackupPhaseInProgress, velerov1.RestorePhaseInProgress
	require.NoError(t, mark.SetCommitting(b, 1))
	require.NoError(t, mark.SetCommitting(r, 1))
	require.Equal(t, mark.StageClosing, mark.BackupStage(b))
	require.Equal(t, mark.StageClosing, mark.RestoreStage(r))
}

func TestCopiedAnnotationsDoNotCount(t *testing.T) {
	asked := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	require.NoError(t, mark.WriteCancelRequest(asked, mark.CancelRequest{By: "alice"}))
	_, ok := mark.CancelRequested(asked)
	require.True(t, ok)
	asked.UID = "two"
	_, ok = mark.CancelRequested(asked)
	require.False(t, ok, "another object was asked to stop")
	require.NoError(t, mark.SetCommitting(asked.DeepCopy(), 1))
	require.NoError(t, mark.WriteCancelRequest(asked, mark.CancelRequest{By: "bob"}))
	r, ok := mark.CancelRequested(asked)
	require.True(t, ok)
	require.Equal(t, mark.CancelRequest{By: "bob", UID: "two"}, r)

	marked := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
	require.NoError(t, mark.SetCommitting(marked, 3))
	require.True(t, mark.IsCommitting(marked))
	marked.UID = "two"
	require.False(t, mark.IsCommitting(marked))
	require.NoError(t, mark.SetCommitting(marked, 1))
	require.Equal(t, "1 two", marked.Annotations[holdfast.AnnotationCommitting])
	for _, text := range []string{"", "3", "two", "3 one"} {
		marked.Annotations[holdfast.AnnotationCommitting] = text
		require.False(t, mark.IsCommitting(marked), text)
	}
}
