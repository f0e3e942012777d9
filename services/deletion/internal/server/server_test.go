package server

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	deletionv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/deletion/v1"
)

func TestDeleteBackup(t *testing.T) {
	long := strings.Repeat("b", 253)
	backup := func(name string, phase velerov1.BackupPhase) *velerov1.Backup {
		b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: "uid"}}
		b.Status.Phase = phase
		return b
	}
	failed := &velerov1.DeleteBackupRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "failed"}}
	failed.Spec.BackupName, failed.Status.Phase, failed.Status.Errors = long, velerov1.DeleteBackupRequestPhaseProcessed, []string{"object is locked"}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		backup(long, velerov1.BackupPhaseCompleted), backup("running", velerov1.BackupPhaseInProgress), backup("restored", velerov1.BackupPhaseCompleted), failed).Build()
	s := &Server{Reader: c, Client: c, Namespace: "velero", Running: func(k *velerov1.Backup) bool { return k.Status.Phase == velerov1.BackupPhaseInProgress },
		Restoring: func(_ context.Context, b *velerov1.Backup) (string, error) {
			if b.Name == "restored" {
				return "the backup is being restored by r", nil
			}
			return "", nil
		}}
	ask := func(name string) (*deletionv1.DeleteBackupResponse, error) {
		return s.DeleteBackup(t.Context(), &deletionv1.DeleteBackupRequest{Backup: name})
	}
	first, err := ask(long)
	require.NoError(t, err)
	require.Equal(t, long, first.GetDeletion().GetBackup())
	require.Equal(t, deletionv1.DeletionPhase_DELETION_PHASE_NEW, first.GetDeletion().GetPhase())
	require.LessOrEqual(t, len(first.GetDeletion().GetName()), 253)
	second, err := ask(long)
	require.NoError(t, err)
	require.Equal(t, first.GetDeletion().GetName(), second.GetDeletion().GetName(), "one is under way")

	got, err := s.GetDeletion(t.Context(), &deletionv1.GetDeletionRequest{Name: "failed"})
	require.NoError(t, err)
	require.Equal(t, deletionv1.DeletionPhase_DELETION_PHASE_PROCESSED, got.GetDeletion().GetPhase())
	require.Equal(t, []string{"object is locked"}, got.GetDeletion().GetErrors())

	_, err = ask("absent")
	require.True(t, apierrors.IsNotFound(err))
	_, err = s.GetDeletion(t.Context(), &deletionv1.GetDeletionRequest{Name: "absent"})
	require.True(t, apierrors.IsNotFound(err))
	_, err = ask("running")
	st, internal := errgrpc.Status(err)
	require.False(t, internal)
	require.Equal(t, codes.FailedPrecondition, st.Code())
	require.Equal(t, reasonInProgress, errgrpc.Reason(st.Err()))
	_, err = ask("restored")
	st, _ = errgrpc.Status(err)
	require.Equal(t, codes.FailedPrecondition, st.Code())
	require.Equal(t, reasonRestoring, errgrpc.Reason(st.Err()))
}
