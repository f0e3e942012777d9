package volumes

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// Snapshotters opens the snapshotters of VolumeSnapshotLocations; nativesnapshot.Opener is one.
type Snapshotters interface {
	Open(ctx context.Context, location string) (action.VolumeSnapshotter, error)
}

// ProvisionerConfig is what volumes are made with.
type ProvisionerConfig struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	History  *outcome.History
	Loader   *object.Loader
	Existing *object.LiveReader
	Names    *object.Names
	Volumes  *Decisions
	// Namespaces are the targets of the restore.
	Namespaces *object.TargetNamespaces
	// Snapshotters make volumes of snapshots. Nil makes those objects errors that need one.
	Snapshotters Snapshotters
	// UID is the Restore's.
	UID types.UID
	// Confirm is called before each call, which does not take place after an error. Nil allows all.
	Confirm  func(ctx context.Context) error
	Timeouts object.DelayTimeouts
	Stop     object.StopSignal
	// DryRun has no volume be made.
	DryRun bool
}

// Provisioner makes the volumes of a restore. Safe for concurrent use.
type Provisioner struct {
	ProvisionerConfig
	classes storageClasses
	live    liveVolumes

	mu   sync.Mutex
	made map[int32]*outcome.Volume // volumes that this holder made
}

// NewProvisioner returns a provisioner.
func NewProvisioner(cfg ProvisionerConfig) *Provisioner {
	return &Provisioner{ProvisionerConfig: cfg, made: map[int32]*outcome.Volume{}}
}
