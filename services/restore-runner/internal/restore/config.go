package restore

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/podvolume"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
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

// Config is one restore: what is restored, where to, and with whose help.
type Config struct {
	Request
	Content
	Cluster
	Records
	Extensions
}

// Request is the Restore.
type Request struct {
	// Backup and Restore are the names for the labels.
	Backup, Restore string
	// UID is the Restore's.
	UID  types.UID
	Spec *velerov1.RestoreSpec
	// PreserveAddresses: Services keep their cluster IPs and node ports where these are free.
	PreserveAddresses bool
	// OverwriteVolumes: volumes that are not empty are filled from file-system backups all the same.
	OverwriteVolumes bool
	// SnapshotTimeout is that of the backup, which bounds the steps of Velero's node-agent.
	SnapshotTimeout time.Duration
	// Server is the namespace of the server, Location the one that the backup is in.
	Server, Location string
}

// Content is what the backup holds, and what becomes of it.
type Content struct {
	Plan    *plan.Plan
	Source  Source
	Volumes *volumes.Decisions
	// Snapshots are the CSI snapshots of the backup. They are needed where claims are filled from
	// them.
	Snapshots *plan.Snapshots
	// Runs are the objects that are left out because they would run again.
	Runs restoreorder.Runs
	// Pauses are the rules by which objects are created paused. pausing.Objects ends that.
	Pauses plan.PauseRules
	// Injections name what admission adds to Pods.
	Injections apply.InjectionRules
}

// Cluster is where objects are restored to.
type Cluster struct {
	REST    *rest.Config
	Catalog *resource.Catalog
	Clock   clock.WithTicker
	// Confirm is called before each change of the cluster and each Execute of an action, which do
	// not take place after an error. Nil allows all.
	Confirm func(ctx context.Context) error
	// DryRun, if set, keeps the cluster as it is: no hook, snapshotter or action is called, nothing is
	// waited for, and the recorder gets what would become of each object.
	DryRun *apply.DryRun
	// Stop, when closed, keeps further objects from being begun; Run returns after those in flight.
	Stop <-chan struct{}
	// TerminatingTimeout is how long a namespace, definition or volume of the same name may take to
	// go away.
	TerminatingTimeout time.Duration
	// ResourceTimeout is how long a definition may take to be served, and how long the claims may take
	// that are filled from CSI snapshots.
	ResourceTimeout time.Duration
}

// Records are what is and was noted about objects.
type Records struct {
	Recorder *outcome.Recorder
	// History is what earlier holders left. Objects with an outcome in the recorder are not touched
	// again.
	History *outcome.History
	// Unrecorded is set if outcomes are not durable: operations of actions are not supported then.
	Unrecorded bool
	// Restored is called once every object has its outcome, before hooks and claims are waited for. Its
	// error is Run's. Nil is not called.
	Restored func(ctx context.Context) error
	// Idle is set if an earlier holder waited for hooks and claims alone.
	Idle bool
	// Dir is an existing directory for objects that wait, once they are many. Empty keeps all of
	// them in memory.
	Dir string
}

// Extensions are the actions, snapshotters and hooks of a restore.
type Extensions struct {
	// Actions are put every object they match, one after the other in this order.
	Actions []action.Bound[action.RestoreItem]
	// IsProcessCrash reports whether a call of an action may have failed because another one ended the
	// plugin process of both: the call is repeated then. Nil is always false.
	IsProcessCrash func(error) bool
	// IsNotSent reports whether an action's error means that the call was certainly not made. Nil is
	// always false.
	IsNotSent func(error) bool
	// Object is the Restore as actions get it. It is needed with Actions only.
	Object *action.Restore
	// ReadyTimeout is how long an object waits until its additional items are ready, unless the action
	// sets it.
	ReadyTimeout time.Duration
	// Instance is the runner's.
	Instance string
	// Snapshotters make volumes of snapshots. Nil makes those objects errors that need one.
	Snapshotters Snapshotters
	// WaitImage is the image of the init container in which Pods wait for the data of their volumes. Empty
	// restores no such data.
	WaitImage string
	// WaitConfig reads what is said about that container. Nil says nothing.
	WaitConfig func(ctx context.Context) (*podvolume.WaitConfig, error)
	// Exec runs the hooks of restored Pods. Nil runs none.
	Exec Executor
}
