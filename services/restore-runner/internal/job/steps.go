package job

import (
	"time"

	"github.com/holdfast-io/holdfast/pkg/job/step"
)

// restoreStep is one step of a restore.
type restoreStep = step.Step[*restoreAttempt]

// The values of a restoreAttempt.
const (
	// backupFound: backup and location.
	backupFound step.Value = "backup"
	// bucketOpen: store, work directory, log and recorder.
	bucketOpen step.Value = "bucket"
	// recordsOpen: the records are this holder's, and its earlier ends are read.
	recordsOpen step.Value = "records"
	// actionsOpen: actions, none where no object is to be restored any more.
	actionsOpen step.Value = "actions"
	// planMade: prepared; without a plan where the backup is not needed any more.
	planMade step.Value = "plan"
	// planRecorded: history; from now on outcomes count.
	planRecorded step.Value = "recorded plan"
	// objectsRestored: all objects have an outcome.
	objectsRestored step.Value = "restored objects"
	// operationsEnded: each operation has ended, or is no longer polled.
	operationsEnded step.Value = "ended operations"
	// commitBegun: a request to cancel comes too late.
	commitBegun step.Value = "mark"
	// pausesEnded: what was created paused is resumed, or known to be still paused.
	pausesEnded step.Value = "resumed objects"
	// endRecorded: finished.
	endRecorded step.Value = "recorded end"
	// filesStored: log, results and lists are in the bucket.
	filesStored step.Value = "files"
)

// openSteps open what a restore needs. Where an earlier holder may have left objects paused, an error
// about the backup counts after the records are open.
func openSteps() []restoreStep {
	return []restoreStep{
		{
			Name: "find the backup", Gives: []step.Value{backupFound}, Successor: step.Repeats, Cancellable: true, Grace: openingGrace,
			Run: findBackup,
		},
		{
			Name: "open the bucket", Needs: []step.Value{backupFound}, Gives: []step.Value{bucketOpen}, Successor: step.Repeats, Cancellable: true, Grace: openingGrace,
			Run: openBucket,
		},
		{
			Name: "open the records", Needs: []step.Value{bucketOpen}, Gives: []step.Value{recordsOpen}, Successor: step.Follows, Cancellable: true, Grace: openingGrace,
			Run: openRecords, Failpoint: "restore-runner/records-opened",
		},
		{
			Name: "check that objects may be restored", Needs: []step.Value{recordsOpen}, Successor: step.Repeats, Cancellable: true,
			Run: checkRestorable,
		},
	}
}

// objectSteps restore the objects. While they run, outcomes are stored and progress is reported. They
// end early where an earlier holder came to the end of the objects.
func objectSteps() []restoreStep {
	return []restoreStep{
		{
			Name: "open the actions", Needs: []step.Value{recordsOpen}, Gives: []step.Value{actionsOpen}, Successor: step.Repeats, Cancellable: true, Grace: planningGrace,
			Run: openActions,
		},
		{
			Name: "plan", Needs: []step.Value{recordsOpen, actionsOpen}, Gives: []step.Value{planMade}, Successor: step.Repeats, Cancellable: true, Grace: planningGrace,
			Run: planRestore,
		},
		{
			Name: "record the plan", Needs: []step.Value{planMade}, Gives: []step.Value{planRecorded}, Successor: step.Follows, Cancellable: true, Grace: planningGrace,
			Run: recordPlan,
		},
		{
			Name: "restore the objects", Needs: []step.Value{planRecorded, actionsOpen}, Gives: []step.Value{objectsRestored}, Successor: step.Follows, Cancellable: true, Grace: objectGrace,
			Run: restoreObjects,
		},
	}
}

// settleSteps decide that a restore whose objects are restored ends well. They end with
// errWaiting while operations of its actions continue.
func settleSteps() []restoreStep {
	return []restoreStep{
		{Name: "look for a request to cancel", Successor: step.Repeats, Run: checkCancelled},
		{Name: "wait for the operations", Needs: []step.Value{recordsOpen}, Gives: []step.Value{operationsEnded}, Successor: step.Follows, Run: awaitOperations},
		{Name: "settle the volumes of moved snapshots", Needs: []step.Value{operationsEnded}, Successor: step.Repeats, Run: settleMoved},
		{Name: "begin the commit", Needs: []step.Value{operationsEnded}, Gives: []step.Value{commitBegun}, Successor: step.Follows, Run: beginCommit},
	}
}

// endSteps end a restore after its commit has begun.
func endSteps() []restoreStep {
	return []restoreStep{
		{Name: "resume paused objects", Needs: []step.Value{commitBegun}, Gives: []step.Value{pausesEnded}, Successor: step.Repeats, Run: resumePaused},
		{Name: "record the end", Needs: []step.Value{pausesEnded}, Gives: []step.Value{endRecorded}, Successor: step.Follows, Run: recordEnd},
		{Name: "store the files", Needs: []step.Value{endRecorded}, Gives: []step.Value{filesStored}, Successor: step.Replaces, Run: storeFiles},
		{Name: "write the phase", Needs: []step.Value{endRecorded, filesStored}, Successor: step.None, Run: writePhase},
	}
}

// failureSteps end a restore as Failed, for its failure, whatever is open. The bucket may be away: they
// do not wait for it long.
func failureSteps() []restoreStep {
	return []restoreStep{
		{Name: "cancel the operations", Successor: step.Repeats, Run: cancelOperations},
		{Name: "resume paused objects", Gives: []step.Value{pausesEnded}, Successor: step.Repeats, Run: resumePaused},
		{Name: "explain the failure", Needs: []step.Value{pausesEnded}, Gives: []step.Value{endRecorded}, Successor: step.Replaces, Run: explainFailure},
		{Name: "write the phase", Needs: []step.Value{endRecorded}, Successor: step.None, Run: writePhase},
	}
}

// deletedSteps end the work at a restore that is being deleted: it gets no phase, and Kind.Finalize
// cancels its operations and removes the rest.
func deletedSteps() []restoreStep {
	return []restoreStep{
		{Name: "resume paused objects", Gives: []step.Value{pausesEnded}, Successor: step.Repeats, Run: resumePaused},
	}
}

// openingGrace lets a restore that an earlier holder began be opened after a request to cancel: what
// is open can be resumed and reported.
func openingGrace(a *restoreAttempt) time.Duration {
	if a.isFresh() {
		return 0
	}
	return cancelledLimit
}

// planningGrace lets a plan be made after a request to cancel where there are records to replay.
func planningGrace(a *restoreAttempt) time.Duration {
	if a.inputs.records.head.Planned == nil {
		return 0
	}
	return Grace
}

// objectGrace is for the objects in flight.
func objectGrace(*restoreAttempt) time.Duration { return Grace }
