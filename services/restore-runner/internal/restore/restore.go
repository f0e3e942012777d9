package restore

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/podhook"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

// What callers give to a restore.
type (
	// Source reads the bodies of items.
	Source = object.Source
	// Snapshotters opens the snapshotters of VolumeSnapshotLocations.
	Snapshotters = volumes.Snapshotters
	// Executor runs commands in containers.
	Executor = podhook.Executor
)

// Config is one restore.
type Config struct {
	// Backup and Restore are the names for the labels.
	Backup, Restore string
	// UID is the Restore's.
	UID     types.UID
	Spec    *velerov1.RestoreSpec
	Plan    *plan.Plan
	Source  Source
	Volumes *volumes.Decisions
	// Snapshots are the CSI snapshots of the backup. They are needed where claims are filled from
	// them.
	Snapshots *plan.Snapshots
	// Server is the namespace of the server.
	Server   string
	Catalog  *resource.Catalog
	Recorder *outcome.Recorder
	REST     *rest.Config
	Clock    clock.WithTicker
	// History is what earlier holders left. Objects with an outcome in the recorder are not touched
	// again.
	History *outcome.History
	// Confirm is called before each change of the cluster and each Execute of an action, which do
	// not take place after an error. Nil allows all.
	Confirm func(ctx context.Context) error
	// Stop, when closed, keeps further objects from being begun; Run returns after those in flight.
	Stop <-chan struct{}
	// TerminatingTimeout is how long a namespace, definition or volume of the same name may take to
	// go away.
	TerminatingTimeout time.Duration
	// ResourceTimeout is how long a definition may take to be served, and how long the claims may take
	// that are filled from CSI snapshots.
	ResourceTimeout time.Duration
	// Actions are put every object they match, one after the other in this order.
	Actions []action.Bound[action.RestoreItem]
	// Collateral reports whether a call of an action may have failed because another one ended the
	// plugin process of both: the call is repeated then. Nil is always false.
	IsProcessCrash func(error) bool
	// Unsent reports whether an action's error means that the call was certainly not made. Nil is
	// always false.
	IsNotSent func(error) bool
	// Unrecorded is set if outcomes are not durable: operations of actions are not supported then.
	Unrecorded bool
	// Instance is the runner's.
	Instance string
	// Runs are the objects that are left out because they would run again.
	Runs restoreorder.Runs
	// Pauses are the rules by which objects are created paused. Resume ends that.
	Pauses plan.PauseRules
	// Snapshotters make volumes of snapshots. Nil makes those objects errors that need one.
	Snapshotters Snapshotters
	// Exec runs the hooks of restored Pods. Nil runs none.
	Exec Executor
	// Object is the Restore as actions get it. It is needed with Actions only.
	Object *action.Restore
	// ReadyTimeout is how long an object waits until its additional items are ready, unless the action
	// sets it.
	ReadyTimeout time.Duration
	// Dir is an existing directory for objects that wait, once they are many. Empty keeps all of
	// them in memory.
	Dir string
}

// Run restores every object of the plan and returns when each has an outcome in the recorder and no
// Pod owes a hook, or with the cause of ctx's end, or with dispatch.ErrStopped. The error is never about single
// objects.
func Run(ctx context.Context, config Config) error {
	r, err := newRun(config)
	if err != nil {
		return err
	}
	defer r.hooks.Start(ctx)()
	for _, pass := range []func(context.Context) error{
		r.owners.Resume(config.History), r.definitions.RestoreAll, r.namespaces.CreateAll, r.restoreObjects, r.awaitClaims, r.hooks.Wait,
	} {
		if err := pass(ctx); err != nil {
			return err
		}
	}
	if c := config.Recorder.Counts(); c.Done < c.Total && r.stop.Requested() {
		return dispatch.ErrStopped // what was waited for last has no outcome
	}
	return nil
}
