// Package provision makes the volumes of a restore's PersistentVolumes of which the backup has
// native snapshots, each once per restore, even after a takeover.
package provision

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/delay"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/existing"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/naming"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/stop"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/volume"
)

// Snapshotters opens the snapshotters of VolumeSnapshotLocations; nativesnapshot.Opener is one.
type Snapshotters interface {
	Open(ctx context.Context, location string) (action.VolumeSnapshotter, error)
}

// Config is what volumes are made with.
type Config struct {
	Plan     *plan.Plan
	Recorder *outcome.Recorder
	History  *outcome.History
	Loader   *object.Loader
	Existing *existing.Reader
	Names    *naming.Names
	Volumes  *volume.Decisions
	// Snapshotters make volumes of snapshots. Nil makes those objects errors that need one.
	Snapshotters Snapshotters
	// UID is the Restore's.
	UID types.UID
	// Confirm is called before each call, which does not take place after an error. Nil allows all.
	Confirm  func(ctx context.Context) error
	Timeouts delay.Timeouts
	Stop     stop.Signal
}

// Provisioner makes the volumes of a restore. Safe for concurrent use.
type Provisioner struct {
	Config

	mu   sync.Mutex
	made map[int32]*outcome.Volume // volumes that this holder made
}

// New returns a provisioner.
func New(cfg Config) *Provisioner {
	return &Provisioner{Config: cfg, made: map[int32]*outcome.Volume{}}
}
