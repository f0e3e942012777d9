package validate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// A crowd of backups costs a few reads, not a few each; what a pass reads is never older than what
// it judges, and nothing is older than a second.
func TestManyBackupsAskOnce(t *testing.T) {
	reads, down := 0, false
	count := func() error {
		reads++
		if down {
			return errors.New("connection refused")
		}
		return nil
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(newStorageLocation("main", isDefault)).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return errors.Join(count(), c.Get(ctx, key, obj, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(count(), c.List(ctx, list, opts...))
		},
	})
	v := validatorOver(c)
	clk := clocktesting.NewFakePassiveClock(now)
	v.Clock = clk
	judge := func() {
		t.Helper()
		for range 100 {
			problems, err := v.Backup(t.Context(), newBackup(velerov1.BackupSpec{}))
			require.NoError(t, err)
			require.Empty(t, problems)
		}
	}
	judge()
	const questions = 4 // which is the default, the location, the snapshot locations, the namespaces that are left out
	require.Equal(t, questions, reads)

	loc := newStorageLocation("main", isDefault)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(loc), loc))
	loc.Status.Phase = velerov1.LocationPhaseUnavailable
	require.NoError(t, c.Update(t.Context(), loc))
	reads = 0
	judge()
	require.Zero(t, reads)
	v.Forget()
	problems, err := v.Backup(t.Context(), newBackup(velerov1.BackupSpec{}))
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, questions, reads)

	clk.SetTime(now.Add(time.Second))
	down = true
	for range 2 { // an error is no answer to keep
		_, err = v.Backup(t.Context(), newBackup(velerov1.BackupSpec{}))
		require.ErrorContains(t, err, "connection refused")
	}
	require.Equal(t, questions+2, reads)
}
