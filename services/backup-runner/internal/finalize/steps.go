// Package finalize brings a backup to its end: it puts together what was collected, commits it,
// writes the terminal phase and removes what no reader needs any more.
//
// The lists of steps in this file are the whole of it, in order. A step takes what it needs from
// the State and leaves there what it gives. The process may die in any of them: what a successor
// does with the step is declared beside it. Every object of the bucket is created once, from
// content that depends on the composition and the parts alone, so that any holder arrives at the
// same.
//
// docs/adding-a-step.md shows how a step is added.
package finalize

import "github.com/holdfast-io/holdfast/pkg/job/step"

// The values of a State.
const (
	// Composition is what the backup consists of: State.Composition.
	Composition step.Value = "composition"
	// Begun is what the records of a backup that fails have of calls: State.begun.
	Begun step.Value = "begun operations"
	// Ended: all operations of the backup have ended, or were cancelled since it fails, State.Operations.
	Ended step.Value = "ended operations"
	// Again is what was stored again after the operations: State.later.
	Again step.Value = "post-operation items"
	// Requests are the file-system backups: State.requests.
	Requests step.Value = "requests of Pod volumes"
	// Plan is the parts and volumes of the records: State.plan, State.volumes.
	Plan step.Value = "plan"
	// Tarball is the composed tarball: State.Tarball.
	Tarball step.Value = "tarball"
	// Merged are the files merged from the sidecars, in the work directory: State.Merged.
	Merged step.Value = "merged files"
	// Files are the files of the backup in the bucket, beside tarball and metadata.
	Files step.Value = "files"
	// Verified: the tarball is as the manifest has it.
	Verified step.Value = "verified tarball"
	// Mark is the annotation holdfast.io/committing: from it on a request to cancel comes too late.
	Mark step.Value = "mark"
	// RecordedFailure is why the backup fails, recorded where that is possible: State.Failure.
	RecordedFailure step.Value = "recorded failure"
	// Final is the backup with its terminal phase, as the metadata file has it: State.Final.
	Final step.Value = "final"
	// Removed: the objects of CSI snapshots are gone from the cluster, or were left to the deletion
	// of the backup.
	Removed step.Value = "removed snapshots"
	// Phase is the terminal phase on the object.
	Phase step.Value = "phase"
)

// Backup are the steps from the first object that is listed to the commit. They may be begun again
// at any time by another holder. Where they fail, Failure decides how the backup ends; where they
// end with a *WaitingError they are begun again once the operations of the backup have ended.
func Backup() []Step {
	return []Step{
		{
			Name: "collect", Gives: []step.Value{Composition}, Successor: step.Follows, Cancellable: true,
			Run: collectItems, Failpoint: "backup-runner/composition-fixed",
		},
		{
			Name: "wait for the operations", Needs: []step.Value{Composition}, Gives: []step.Value{Ended}, Successor: step.Follows, Cancellable: true,
			Run: awaitOperations,
		},
		{
			Name: "store items again", Needs: []step.Value{Ended}, Gives: []step.Value{Again}, Successor: step.Follows, Cancellable: true,
			Run: storeItemsAgain, Failpoint: "backup-runner/stored-again",
		},
		{
			Name: "store the requests of Pod volumes", Needs: []step.Value{Ended}, Gives: []step.Value{Requests}, Successor: step.Follows, Cancellable: true,
			Run: fixRequests,
		},
		{
			Name: "read the records", Needs: []step.Value{Composition, Again, Requests}, Gives: []step.Value{Plan}, Successor: step.Repeats, Cancellable: true,
			Run: readRecords, Failpoint: "backup-runner/plan-read",
		},
		step.SideBySide(
			Step{
				Name: "assemble the tarball", Needs: []step.Value{Plan}, Gives: []step.Value{Tarball}, Successor: step.Adopts, Cancellable: true,
				Run: assembleTarball, Failpoint: "backup-runner/tarball-composed",
			},
			Step{
				Name: "merge the sidecars", Needs: []step.Value{Plan}, Gives: []step.Value{Merged}, Successor: step.Repeats, Cancellable: true,
				Run: mergeSidecars, Failpoint: "backup-runner/sidecars-merged",
			},
		),
		{
			Name: "store the files", Needs: []step.Value{Merged}, Gives: []step.Value{Files}, Successor: step.Adopts, Cancellable: true,
			Run: storeFiles,
		},
		{
			Name: "verify the tarball", Needs: []step.Value{Tarball, Files}, Gives: []step.Value{Verified}, Successor: step.Repeats, Cancellable: true,
			Run: verifyTarball, Failpoint: "backup-runner/tarball-verified",
		},
		{
			Name: "mark the commit", Needs: []step.Value{Verified}, Gives: []step.Value{Mark}, Successor: step.Follows,
			Run: markCommit,
		},
		{
			Name: "commit", Needs: []step.Value{Mark, Tarball, Merged}, Gives: []step.Value{Final}, Successor: step.Follows,
			Run: commitBackup,
		},
	}
}

// Failure are the steps that commit a backup as Failed, for State.Cause. If it was committed
// before, that commit is kept.
func Failure() []Step {
	return []Step{
		{Name: "look for a commit", Successor: step.Repeats, Run: lookForCommit},
		{Name: "record the failure", Gives: []step.Value{RecordedFailure}, Successor: step.Follows, Run: recordFailure},
		{Name: "run the post hooks", Needs: []step.Value{RecordedFailure}, Successor: step.Repeats, Run: runPostHooks},
		{Name: "list the snapshots", Needs: []step.Value{RecordedFailure}, Gives: []step.Value{Begun}, Successor: step.Follows, Run: listSnapshots},
		{Name: "cancel the operations", Needs: []step.Value{Begun}, Gives: []step.Value{Ended}, Successor: step.Follows, Run: endOperations},
		{Name: "explain the failure", Needs: []step.Value{RecordedFailure, Ended}, Successor: step.Adopts, Run: explainFailure},
		{Name: "list the operations", Needs: []step.Value{Ended}, Successor: step.Follows, Run: listOperations},
		{Name: "commit the failure", Needs: []step.Value{RecordedFailure}, Gives: []step.Value{Final}, Successor: step.Follows, Run: commitFailure},
	}
}

// Foreign are the steps that end a backup which another server stored and left unfinished:
// State.Stored is its metadata file.
func Foreign() []Step {
	return []Step{
		{
			Name: "end the foreign backup", Gives: []step.Value{Final}, Successor: step.Follows,
			Run: endForeign,
		},
	}
}

// End are the steps after the end was decided in the bucket. A holder that dies before the phase is
// written is followed by one that finds the commit and takes them. Once it is written the backup is
// over for all that wait for it, and what is left of its parts is a leftover.
func End() []Step {
	return []Step{
		{
			Name: "end the snapshots", Needs: []step.Value{Final}, Gives: []step.Value{Removed}, Successor: step.Repeats,
			Run: endSnapshots, Failpoint: "backup-runner/snapshots-ended",
		},
		{Name: "write the phase", Needs: []step.Value{Final, Removed}, Gives: []step.Value{Phase}, Successor: step.Follows, Run: writePhase},
		{Name: "sweep the parts", Needs: []step.Value{Phase}, Successor: step.None, Run: sweepParts},
	}
}
