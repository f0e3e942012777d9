package remove

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/services/deletion/internal/expiry"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

// A plugin that cannot reach its service for a minute ends the request, and the backup stays
// Deleting until it is requested again.
func TestAFailedActionIsTriedAgainWithGrowingPauses(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.r.Tries = 0
	asked := 0
	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { asked++; return errors.New("the service is away") })
	for _, pause := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute} {
		before := asked
		require.Equal(t, Later, b.processRequest("d"))
		require.Equal(t, before+1, asked)
		d := b.readRequest("d")
		require.Equal(t, velerov1.DeleteBackupRequestPhaseInProgress, d.Status.Phase)
		require.Equal(t, []string{"delete item actions: the service is away"}, d.Status.Errors, "what it waits for is told")
		b.clock.Step(pause - time.Second)
		require.Equal(t, Later, b.processRequest("d"))
		require.Equal(t, before+1, asked, "not before the pause is over")
		b.clock.Step(time.Second)
	}
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, expiry.PerRequest, asked)
	d := b.readRequest("d")
	require.Equal(t, velerov1.DeleteBackupRequestPhaseProcessed, d.Status.Phase)
	require.Equal(t, []string{"delete item actions: the service is away"}, d.Status.Errors)
	require.Equal(t, b.clock.Now().Add(4*time.Minute), expiry.ReadTries(d).After, "when the next request for an expired backup is due")
}

// An action that will never succeed again keeps its backups, and their data, until the plugin is
// removed.
func TestALeaveToSkipActionsLetsTheDeletionGoOn(t *testing.T) {
	leave := func(obj client.Object) {
		obj.SetAnnotations(map[string]string{holdfast.AnnotationSkipDeleteActions: "true"})
	}
	for _, on := range []string{"request", "request that waits", "backup"} {
		k, d := newBackup(velerov1.BackupPhaseCompleted), newRequest("d")
		b := newBed(t)
		b.r.Tries = 0
		b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { return errors.New("never again") })
		switch on {
		case "request":
			leave(d)
		case "backup":
			leave(k)
		}
		require.NoError(t, b.client.Create(t.Context(), k))
		require.NoError(t, b.client.Create(t.Context(), d))
		b.fillBucket(k)
		if on == "request that waits" {
			require.Equal(t, Later, b.processRequest("d"))
			d = b.readRequest("d")
			all := d.GetAnnotations()
			all[holdfast.AnnotationSkipDeleteActions] = "true"
			d.SetAnnotations(all)
			require.NoError(t, b.client.Update(t.Context(), d))
		}
		require.Equal(t, Done, b.processRequest("d"), on)
		require.Equal(t, neighbours, b.store.Keys(), on)
		require.Nil(t, b.readBackup(), on)
	}
}

func TestALeaveThatIsNeitherYesNorNoIsRefused(t *testing.T) {
	bad := map[string]string{holdfast.AnnotationSkipDeleteActions: "yes"}
	for _, onBackup := range []bool{true, false} {
		k, d := newBackup(velerov1.BackupPhaseCompleted), newRequest("d")
		if onBackup {
			k.Annotations = bad
		} else {
			d.Annotations = bad
		}
		b := newBed(t, k, d)
		b.fillBucket(k)
		require.Equal(t, Done, b.processRequest("d"))
		errs := b.readRequest("d").Status.Errors
		require.Len(t, errs, 1)
		require.Contains(t, errs[0], `metadata.annotations[holdfast.io/skip-delete-actions]: "yes" is neither true nor false`)
		require.Equal(t, velerov1.BackupPhaseCompleted, b.readBackup().Status.Phase)
	}
}

// A deletion that cannot be worked on because others wait for its action has not failed.
func TestADeletionOfABusyActionComesAgain(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	busy, registry := true, prometheus.NewRegistry()
	b.r.Metrics = NewMetrics(count.NewSchedules(registry, b.client, "velero"))
	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error {
		if busy {
			return itemaction.FailedWith([]error{itemaction.ErrBusy})
		}
		return nil
	})
	for range 3 * expiry.PerRequest {
		require.Equal(t, Later, b.processRequest("d"))
		d := b.readRequest("d")
		require.Equal(t, []string{"delete item actions: works for other deletions"}, d.Status.Errors)
		require.Zero(t, expiry.ReadTries(d).Failed)
		b.clock.Step(busyPause)
	}
	series, err := testutil.CollectAndFormat(registry, expfmt.TypeTextPlain, "velero_backup_deletion_failure_total")
	require.NoError(t, err)
	require.Contains(t, string(series), `{schedule=""} 0`)
	busy = false
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readBackup())
}

func TestADeletionThatPanicsIsGivenUp(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { panic("a defect") })
	for range 3 {
		_, err := b.r.Process(t.Context(), "d")
		require.ErrorIs(t, err, engine.ErrInternal)
		held, _, err := claim.Parse(b.readRequest("d"))
		require.NoError(t, err)
		require.Empty(t, held.Owner)
	}
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, []string{"internal error"}, b.readRequest("d").Status.Errors)
	require.NotNil(t, b.readBackup())
}
