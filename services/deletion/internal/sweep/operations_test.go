package sweep

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// sealOperations leaves the records of two operations, of which the first was followed to its end.
func (b *bed) sealOperations(job operation.Job) {
	b.t.Helper()
	_, err := operation.Seal(b.t.Context(), b.store, operation.List{Job: job, Operations: []operation.Operation{{Action: "x/y", ID: "one"}, {Action: "x/y", ID: "two"}}})
	require.NoError(b.t, err)
	b.endOperation(job, 0)
}

func (b *bed) endOperation(job operation.Job, i int) {
	b.t.Helper()
	log, err := operation.Open(b.t.Context(), b.store, job)
	require.NoError(b.t, err)
	require.NoError(b.t, log.Append(b.t.Context(), operation.Event{Operation: i, Time: b.clock.Now(), End: &operation.End{}}))
}

// staysForTheGrace requires that what is in a directory stays while operations may still be cancelled by
// it, and no longer.
func (b *bed) staysForTheGrace(dir string, before []string) {
	b.t.Helper()
	b.clock.Step(operationsGrace - time.Minute)
	b.runPass()
	require.Equal(b.t, before, b.keysUnder(dir), "its operations may still be cancelled")
	b.clock.Step(time.Hour)
	b.runPass()
	require.Empty(b.t, b.keysUnder(dir))
}

// The records of operations that a restore was ended over went at once, so that
// async-operation-monitor could not cancel the operations any more.
func TestRecordsOfOperationsThatARestoreWasEndedOverStayForTheGrace(t *testing.T) {
	job := operation.Job{Kind: operation.KindRestore, Name: "r", UID: "u"}
	records := layout.RestoreRecords("r", "u")
	t.Run("ended", func(t *testing.T) {
		b := newBed(t, newRestore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.sealOperations(job)
		before := b.keysUnder(records)
		b.sweepTwice()
		b.staysForTheGrace(records, before)
	})
	t.Run("deleted later", func(t *testing.T) {
		b := newBed(t, newRestore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.sealOperations(job)
		b.sweepTwice()
		b.clock.Step(operationsGrace - time.Hour)
		before := b.keysUnder(records)
		require.NoError(t, b.client.Delete(t.Context(), newRestore("r", "u", "")))
		b.runPass()
		b.staysForTheGrace(records, before)
	})
	t.Run("cancelled", func(t *testing.T) {
		b := newBed(t, newRestore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.sealOperations(job)
		b.runPass()
		b.endOperation(job, 1)
		b.clock.Step(time.Hour)
		b.runPass()
		require.Empty(t, b.keysUnder(records), "all have ended")
	})
	t.Run("damaged", func(t *testing.T) {
		b := newBed(t, newRestore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.putKeys(layout.RestoreOperations("r", "u") + "list")
		b.runPass()
		require.Empty(t, b.keysUnder(records), "nothing is cancelled by them")
	})
	t.Run("not read", func(t *testing.T) {
		b := newBed(t, newRestore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.sealOperations(job)
		b.endOperation(job, 1)
		before := b.keysUnder(records)
		b.store.Inject(func(op memstore.Op, key string) error {
			if op == memstore.OpGet && key == layout.RestoreOperations("r", "u")+"list" {
				return errors.New("timeout")
			}
			return nil
		})
		b.runPass()
		require.Equal(t, before, b.keysUnder(records), "a bucket that does not answer proves nothing")
	})
}

// The records of a backup that is gone were removed while its operations may still be cancelled by them.
func TestRecordsOfOperationsOfADeletedBackupStayForTheGrace(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "abandoned": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.putOwner("b", "u", "here")
			if committed {
				b.putCommitted("b")
			}
			b.sealOperations(operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"})
			before := b.keysUnder(layout.PartsDir("b"))
			b.sweepTwice()
			b.staysForTheGrace(layout.PartsDir("b"), before)
		})
	}
}

// So did those that a backup was ended over.
func TestRecordsOfOperationsThatABackupWasEndedOverStayForTheGrace(t *testing.T) {
	job := operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}
	b := newBed(t, newBackup("b", "velero", "u", "Failed"))
	b.putOwner("b", "u", "here")
	b.putCommitted("b")
	b.sealOperations(job)
	before := b.store.Keys()
	b.sweepTwice()
	b.clock.Step(operationsGrace - time.Minute)
	b.runPass()
	require.Equal(t, before, b.store.Keys(), "its operations may still be cancelled")
	b.endOperation(job, 1)
	b.clock.Step(time.Minute - grace)
	b.s = b.newSweeper(nil) // another replica, which has not seen since when
	b.runPass()
	require.Empty(t, b.keysUnder(layout.PartsDir("b")))
}

// The grace of a backup that took the directory of one of its name counts from its own end.
func TestABackupOfTheSameNameHasAGraceOfItsOwn(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "first", "here")
	b.sealOperations(operation.Job{Kind: operation.KindBackup, Name: "b", UID: "first"})
	b.sweepTwice()
	b.clock.Step(operationsGrace)
	for _, key := range b.keysUnder(layout.BackupDir("b")) {
		require.NoError(t, b.store.Delete(t.Context(), key))
	}
	b.putOwner("b", "second", "here")
	before := b.keysUnder(layout.BackupDir("b"))
	b.runPass()
	require.Equal(t, before, b.keysUnder(layout.BackupDir("b")))
}

// A pass that fails before it reaches a directory does not make its grace begin anew.
func TestAPassThatFailsForgetsNoGrace(t *testing.T) {
	b := newBed(t)
	b.putOwner("b", "u", "here")
	b.sealOperations(operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"})
	b.sweepTwice()
	b.clock.Step(operationsGrace / 2)
	b.store.Inject(func(memstore.Op, string) error { return errors.New("timeout") })
	require.ErrorContains(t, b.s.Pass(t.Context()), "timeout")
	b.store.Inject(nil)
	b.clock.Step(operationsGrace / 2)
	b.runPass()
	require.Empty(t, b.keysUnder(layout.BackupDir("b")))
}
