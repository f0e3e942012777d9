package remove

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

// snapshotsFunc implements Snapshots.
type snapshotsFunc func(ctx context.Context, job snapshots.Job) error

func (f snapshotsFunc) Run(ctx context.Context, job snapshots.Job) error { return f(ctx, job) }

func TestSnapshotsThatStayKeepEverything(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	keys := b.store.Keys()
	var order []string
	refusal := errors.New("an action failed")
	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error {
		order = append(order, "actions")
		return refusal
	})
	record := layout.DeletionSnapshots("b", "b-uid") + "uid-e-1-000000.json"
	b.r.Snapshots = snapshotsFunc(func(ctx context.Context, job snapshots.Job) error {
		order = append(order, "snapshots of "+job.Backup+" "+job.UID+" "+job.Attempt)
		require.Zero(t, b.store.Calls(memstore.OpDelete))
		require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))
		require.NoError(t, job.Confirm(ctx))
		if job.Attempt == "uid-e-1" {
			require.NoError(t, objectstore.CreateBytes(ctx, job.Store, record, []byte("{}")))
			return &itemaction.FailedError{Errs: []error{errors.New(`snapshot "s": array is away`)}, More: 2}
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, []string{"actions"}, order, "snapshots go after the actions, which may need them")

	refusal = nil
	require.NoError(t, b.client.Create(t.Context(), newRequest("e")))
	require.Equal(t, Done, b.processRequest("e"))
	require.Equal(t, []string{"actions", "actions", "snapshots of b b-uid uid-e-1"}, order)
	require.Equal(t, []string{`native snapshots: snapshot "s": array is away`, "native snapshots: and 2 more errors"}, b.readRequest("e").Status.Errors)
	require.ElementsMatch(t, append(keys, record), b.store.Keys())
	require.Equal(t, velerov1.BackupPhaseDeleting, b.readBackup().Status.Phase)
	require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))

	require.NoError(t, b.client.Create(t.Context(), newRequest("f")))
	require.Equal(t, Done, b.processRequest("f"))
	require.Equal(t, neighbours, b.store.Keys(), "the record goes with the rest")
	require.Nil(t, b.readBackup())
	require.Nil(t, findObject(b, &velerov1.Restore{}, "r"))
}
