package finalize

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/job/step"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// Holder is the claim under which a backup is finalized.
type Holder interface {
	// Confirm returns an error wrapping claim.ErrLost once the claim is another holder's.
	Confirm(ctx context.Context) error
	// Present is Confirm that reads the object: the error wraps claim.ErrLost also when it is gone.
	Present(ctx context.Context) error
	// BeginCommit marks that the backup commits, on the object and only while it carries the claim.
	// A request to cancel that came before is the error, a *mark.CancelError.
	BeginCommit(ctx context.Context) error
	// Finish writes the terminal status of final, unless the phase is terminal already, and
	// announces it, once.
	Finish(ctx context.Context, final *velerov1.Backup, contents Contents) error
	// Cancelling ends once the backup is asked to stop, or with the claim.
	Cancelling() context.Context
	// Cancelled is the request to stop, nil while there is none.
	Cancelled() *mark.CancelError
}

// Job is a backup to finalize.
type Job struct {
	// Backup is the object as it was claimed, or as it was written since.
	Backup *velerov1.Backup
	// Claimed is the phase in which the object was claimed.
	Claimed velerov1.BackupPhase
	// Epoch is the claim's.
	Epoch int64
	// Cluster is the UID of the cluster's namespace kube-system.
	Cluster string
	Holder  Holder
	Store   objectstore.Store
	// Dir is a directory for files on their way to the bucket.
	Dir   string
	Clock clock.WithTicker
	Log   *slog.Logger
	// Collect lists and stores what is not stored yet, and fixes the composition.
	Collect func(ctx context.Context) (checkpoint.Composition, error)
	// Again stores items as they are now, regardless of the filters of the backup, and returns the
	// keys of the records. The namespaces are those the backup was admitted for.
	Again func(ctx context.Context, namespaces []string, items []operation.Resource) (records []string, err error)
	// Canceller cancels the operations of a backup that fails.
	Canceller *operation.Canceller
	// Snapshots are the CSI snapshots of the cluster; nil where there are none.
	Snapshots Snapshots
	// PodVolumes are the requests of file-system backups; nil where there are none.
	PodVolumes PodVolumes
	// GivenUp is why the backup ends without another try, nil for any other: nothing is collected or
	// assembled any more.
	GivenUp error
	// Exec runs the post hooks that a backup which fails owes; nil runs none.
	Exec podhook.Executor
	// Opened are the Pods whose hooks this process began; nil keeps none.
	Opened *podhook.Opened
}

// Snapshots removes the objects of CSI snapshots; csisnapshot.API does.
type Snapshots interface {
	// End removes the snapshot objects of a backup; what the driver stored stays for those that are
	// stored, and goes for the others.
	End(ctx context.Context, of csisnapshot.Owner, stored func(snapshot types.NamespacedName) bool) error
}

// Contents is what a backup holds.
type Contents struct {
	TarballSize             int64
	Items, Warnings, Errors int
	// Snapshots are the native snapshots that were begun, Completed those of them that came about.
	Snapshots, Completed int
	// Hooks counts the hooks of Pods whose hooks have ended.
	Hooks velerov1.HookStatus
	// PlanDifferences says how the backup differs from the plan that it executes; empty without one.
	PlanDifferences string
}

// State is what the steps to the end of one backup hand on. One goroutine runs steps; those that
// run side by side write different values.
type State struct {
	Job
	steps step.Runner[*State]

	Composition *checkpoint.Composition
	// Operations are those that the backup waited for; nil without any.
	Operations *operation.Log
	// requests are the file-system backups of the backup, as their file has them.
	requests []velerov1.PodVolumeBackup
	// later are the records of what was stored again, whose parts come after those of the
	// composition.
	later   []string
	plan    assembly.Plan
	volumes *aboutVolumes
	Tarball assembly.Result
	Merged  *assembly.Merged
	// begun are the outcomes of calls that began an operation.
	begun []operation.Operation
	// Cause is why the steps of Backup failed.
	Cause   error
	Failure checkpoint.Failure
	// Stored is the metadata file that another server left.
	Stored *velerov1.Backup
	Final  *velerov1.Backup
	// Contents are what the steps found out so far.
	Contents Contents
}

// New returns the state of a backup before its first step.
func New(job Job) *State {
	s := &State{Job: job}
	s.steps = step.Runner[*State]{State: s, Holder: job.Holder, Clock: job.Clock, Log: job.Log, Pauses: isWaiting, Outranks: outranksCancel}
	return s
}

// Close releases what the steps keep open. Work files stay until the directory goes.
func (s *State) Close() {
	if s.volumes != nil {
		s.volumes.close()
		s.volumes = nil
	}
}

// Decide sets the end that was decided without a step.
func (s *State) Decide(final *velerov1.Backup) {
	s.Final = final
	s.steps.Give(Final)
}
