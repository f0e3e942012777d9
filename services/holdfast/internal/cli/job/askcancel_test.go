package job_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	authenticationv1 "k8s.io/api/authentication/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

// returnCaller has the API server return the name of the caller; without one it returns an error.
func returnCaller(c *clitest.Cluster, name string) {
	c.WithWatch = interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if review, ok := obj.(*authenticationv1.SelfSubjectReview); ok {
				review.Status.UserInfo.Username = name
				if name == "" {
					return errors.New("the server could not find the requested resource")
				}
				return nil
			}
			return w.Create(ctx, obj, opts...)
		},
	})
}

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "velero", Name: name}
}

func TestCancelAsksInTheNameOfTheCaller(t *testing.T) {
	for caller, want := range map[string]string{"alice": "cancelled by alice", "": "cancelled"} {
		b, r := &velerov1.Backup{ObjectMeta: objectMeta("b")}, &velerov1.Restore{ObjectMeta: objectMeta("r")}
		b.Status.Phase, r.Status.Phase = velerov1.BackupPhaseInProgress, velerov1.RestorePhaseInProgress
		c := clitest.New(t, b, r)
		returnCaller(c, caller)
		for range 2 {
			require.Zero(t, c.Run(t.Context(), "", "backup", "cancel", "b").Code)
			require.Zero(t, c.Run(t.Context(), "", "restore", "cancel", "r").Code)
		}
		for _, o := range []client.Object{b, r} {
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			asked, ok := mark.CancelRequested(o)
			require.True(t, ok)
			require.Equal(t, want, asked.Reason())
			require.False(t, asked.Time.IsZero())
		}
	}
}

func TestCancelComesTooLate(t *testing.T) {
	done, closing := &velerov1.Backup{ObjectMeta: objectMeta("done")}, &velerov1.Backup{ObjectMeta: objectMeta("closing")}
	done.Status.Phase, closing.Status.Phase = velerov1.BackupPhaseCompleted, velerov1.BackupPhaseInProgress
	require.NoError(t, mark.SetCommitting(closing, 1))
	gone := &velerov1.Backup{ObjectMeta: objectMeta("gone")}
	gone.Status.Phase, gone.Status.FailureReason = velerov1.BackupPhaseFailed, "cancelled by bob"
	restored := &velerov1.Restore{ObjectMeta: objectMeta("restored")}
	restored.Status.Phase = velerov1.RestorePhaseCompleted
	c := clitest.New(t, done, closing, gone, restored)
	returnCaller(c, "alice")

	out := c.Run(t.Context(), "", "backup", "cancel", "done", "closing", "gone", "absent")
	require.Equal(t, 1, out.Code)
	require.Contains(t, out.Err, `cancel backup "done": it has ended: Completed`)
	require.Contains(t, out.Err, `cancel backup "closing": it is about to end`)
	require.Contains(t, out.Err, `backup "absent"`)
	require.Equal(t, "Backup \"gone\" was asked to stop.\n", out.Out, "asking again is fine")
	out = c.Run(t.Context(), "", "restore", "cancel", "restored")
	require.Equal(t, 1, out.Code)
	require.Contains(t, out.Err, "it has ended: Completed")
	require.NotZero(t, c.Run(t.Context(), "", "backup", "cancel").Code, "no name")
}

func TestCancelWaitsForTheEnd(t *testing.T) {
	for phase, want := range map[velerov1.BackupPhase]int{velerov1.BackupPhaseFailed: 0, velerov1.BackupPhaseCompleted: 1} {
		b := &velerov1.Backup{ObjectMeta: objectMeta("b")}
		b.Status.Phase = velerov1.BackupPhaseInProgress
		c := clitest.New(t, b)
		base := c.WithWatch
		c.WithWatch = interceptor.NewClient(base, interceptor.Funcs{
			Patch: func(ctx context.Context, w client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if err := w.Patch(ctx, obj, patch, opts...); err != nil {
					return err
				}
				ended := obj.DeepCopyObject().(*velerov1.Backup) //nolint:forcetypeassert // nothing else is patched
				ended.Status.Phase = phase
				if phase == velerov1.BackupPhaseFailed {
					ended.Status.FailureReason = "cancelled"
				}
				return base.Update(ctx, ended)
			},
		})
		out := c.Run(t.Context(), "", "backup", "cancel", "b", "--wait")
		require.Equal(t, want, out.Code, out.Err)
	}
}
