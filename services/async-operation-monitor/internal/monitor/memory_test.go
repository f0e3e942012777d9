package monitor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// The operations of a backup whose object was deleted past every request, or failed over them, are cancelled
// once by the process that follows it, in a bucket that is away too; those of a new backup of that name
// are not. One that moves on as usual is left to its runner. An operation whose end another replica
// recorded since the last poll is never cancelled: a completed backup may name its result.
func TestTheOperationsOfAJobThatWaitsNoMoreAreCancelled(t *testing.T) {
	remove := func(b *bed) { require.NoError(b, b.api.Delete(b.Context(), b.readBackup("a"))) }
	end := func(phase velerov1.BackupPhase) func(b *bed) {
		return func(b *bed) { b.editBackup("a", func(o *velerov1.Backup) { o.Status.Phase = phase }) }
	}
	endElsewhere := func(b *bed, operations ...int) {
		log, err := operation.Open(b.Context(), b.store, operation.Job{Kind: operation.KindBackup, Name: "a", UID: "a-uid"})
		require.NoError(b, err)
		for _, i := range operations {
			require.NoError(b, log.Append(b.Context(), operation.Event{Operation: i, Time: time.Now(), End: &operation.End{}}))
		}
	}
	for name, tc := range map[string]struct {
		change func(b *bed)
		told   []string
	}{
		"gone": {remove, []string{"one", "two"}},
		"another of that name": {func(b *bed) {
			remove(b)
			o := b.readObject(operation.KindBackup, "a")
			o.SetUID("new")
			b.sealOperations(operation.KindBackup, o, "four")
			require.NoError(b, b.api.Create(b.Context(), o))
		}, []string{"one", "two"}},
		"gone, bucket away": {func(b *bed) {
			b.store.Inject(func(memstore.Op, string) error { return errors.New("connection refused") })
			remove(b)
		}, []string{"one", "two"}},
		"failed":    {end(velerov1.BackupPhaseFailed), []string{"one", "two"}},
		"moved on":  {end(velerov1.BackupPhaseFinalizing), nil},
		"completed": {end(velerov1.BackupPhaseCompleted), nil},
		"gone, ends recorded elsewhere": {func(b *bed) {
			endElsewhere(b, 0, 1)
			remove(b)
		}, nil},
		"failed, one end recorded elsewhere": {func(b *bed) {
			endElsewhere(b, 0)
			end(velerov1.BackupPhaseFailed)(b)
		}, []string{"two"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.plugins.setProgress("done", action.Progress{Done: true})
				b.createJob(operation.KindBackup, "a", "one", "two", "done")
				b.createJob(operation.KindBackup, "other", "three")
				b.startReplica()
				b.advanceClock(time.Minute)
				tc.change(b)
				b.advanceClock(2 * time.Minute)
				require.ElementsMatch(b, tc.told, b.plugins.cancelledIDs())
				asked := b.plugins.countCalls("one")
				b.advanceClock(10 * time.Minute)
				require.Equal(b, asked, b.plugins.countCalls("one"), "nothing is asked any more")
			})
		})
	}
}

// A backup may be deleted before its first poll has read its operations. They are cancelled after the poll.
func TestABackupDeletedDuringItsFirstPollIsNotForgotten(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.createJob(operation.KindBackup, "a", "one", "two")
		answer := make(chan struct{})
		b.store.Inject(func(memstore.Op, string) error {
			<-answer
			return nil
		})
		b.startReplica()
		b.advanceClock(time.Second)
		require.NoError(b, b.api.Delete(b.Context(), b.readBackup("a")))
		b.advanceClock(5 * time.Second)
		close(answer)
		b.advanceClock(time.Minute)
		require.ElementsMatch(b, []string{"one", "two"}, b.plugins.cancelledIDs())
	})
}
