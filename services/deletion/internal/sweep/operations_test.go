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

// seal leaves the records of two operations, of which the first was followed to its end.
func (b *bed) seal(job operation.Job) {
	b.t.Helper()
	_, err := operation.Seal(b.t.Context(), b.store, operation.List{Job: job, Operations: []operation.Operation{{Action: "x/y", ID: "one"}, {Action: "x/y", ID: "two"}}})
	require.NoError(b.t, err)
	b.end(job, 0)
}

func (b *bed) end(job operation.Job, i int) {
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
	b.pass()
	require.Equal(b.t, before, b.under(dir), "its operations may still be cancelled")
	b.clock.Step(time.Hour)
	b.pass()
	require.Empty(b.t, b.under(dir))
}

// The records of operations that a restore was ended over went at once, so that
// async-operation-monitor could not cancel the operations any more.
func TestRecordsOfOperationsThatARestoreWasEndedOverStayForTheGrace(t *testing.T) {
	job := operation.Job{Kind: operation.KindRestore, Name: "r", UID: "u"}
	records := layout.RestoreRecords("r", "u")
	t.Run("ended", func(t *testing.T) {
		b := newBed(t, restore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.seal(job)
		before := b.under(records)
		b.sweep()
		b.staysForTheGrace(records, before)
	})
	t.Run("deleted later", func(t *testing.T) {
		b := newBed(t, restore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.seal(job)
		b.sweep()
		b.clock.Step(operationsGrace - time.Hour)
		before := b.under(records)
		require.NoError(t, b.client.Delete(t.Context(), restore("r", "u", "")))
		b.pass()
		b.staysForTheGrace(records, before)
	})
	t.Run("cancelled", func(t *testing.T) {
		b := newBed(t, restore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.seal(job)
		b.pass()
		b.end(job, 1)
		b.clock.Step(time.Hour)
		b.pass()
		require.Empty(t, b.under(records), "all have ended")
	})
	t.Run("damaged", func(t *testing.T) {
		b := newBed(t, restore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.set(layout.RestoreOperations("r", "u") + "list")
		b.pass()
		require.Empty(t, b.under(records), "nothing is cancelled by them")
	})
	t.Run("not read", func(t *testing.T) {
		b := newBed(t, restore("r", "u", "Failed"))
		b.ownRestore("r", "u", "here")
		b.seal(job)
		b.end(job, 1)
		before := b.under(records)
		b.store.Inject(func(op memstore.Op, key string) error {
			if op == memstore.OpGet && key == layout.RestoreOperations("r", "u")+"list" {
				return errors.New("timeout")
			}
			return nil
		})
		b.pass()
		require.Equal(t, before, b.under(records), "a bucket that does not answer proves nothing")
	})
}

// The records of a backup that is gone were removed while its operations may still be cancelled by them.
func TestRecordsOfOperationsOfADeletedBackupStayForTheGrace(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "abandoned": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.own("b", "u", "here")
			if committed {
				b.committed("b")
			}
			b.seal(operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"})
			before := b.under(layout.PartsDir("b"))
			b.sweep()
			b.staysForTheGrace(layout.PartsDir("b"), before)
		})
	}
}

// So did those that a backup was ended over.
func TestRecordsOfOperationsThatABackupWasEndedOverStayForTheGrace(t *testing.T) {
	job := operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}
	b := newBed(t, backup("b", "velero", "u", "Failed"))
	b.own("b", "u", "here")
	b.committed("b")
	b.seal(job)
	before := b.store.Keys()
	b.sweep()
	b.clock.Step(operationsGrace - time.Minute)
	b.pass()
	require.Equal(t, before, b.store.Keys(), "its operations may still be cancelled")
	b.end(job, 1)
	b.clock.Step(time.Minute - grace)
	b.s = b.sweeper(nil) // another replica, which has not seen since when
	b.pass()
	require.Empty(t, b.under(layout.PartsDir("b")))
}

// The grace of a backup that took the directory of one of its name counts from its own end.
func TestABackupOfTheSameNameHasAGraceOfItsOwn(t *testing.T) {
	b := newBed(t)
	b.own("b", "first", "here")
	b.seal(operation.Job{Kind: operation.KindBackup, Name: "b", UID: "first"})
	b.sweep()
	b.clock.Step(operationsGrace)
	for _, key := range b.under(layout.BackupDir("b")) {
		require.NoError(t, b.store.Delete(t.Context(), key))
	}
	b.own("b", "second", "here")
	before := b.under(layout.BackupDir("b"))
	b.pass()
	require.Equal(t, before, b.under(layout.BackupDir("b")))
}

// A pass that fails before it reaches a directory does not make its grace begin anew.
func TestAPassThatFailsForgetsNoGrace(t *testing.T) {
	b := newBed(t)
	b.own("b", "u", "here")
	b.seal(operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"})
	b.sweep()
	b.clock.Step(operationsGrace / 2)
	b.store.Inject(func(memstore.Op, string) error { return errors.New("timeout") })
	require.ErrorContains(t, b.s.Pass(t.Context()), "timeout")
	b.store.Inject(nil)
	b.clock.Step(operationsGrace / 2)
	b.pass()
	require.Empty(t, b.under(layout.BackupDir("b")))
}
