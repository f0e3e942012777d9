// Package volumes decides on the volumes of what was collected, and takes their native snapshots:
// each once per backup, however often its holder changes. Facts
// are what the lists of a backup learn from one another.
package volumes

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// PodVolumes reports whether the data of a claim is taken by file-system backup; podvolume.Backupper
// is one.
type PodVolumes interface {
	Takes(ctx context.Context, namespace, claim string, final bool) (bool, error)
}

// Config is what decides on the volumes of a backup. Everything is required but Lock.
type Config struct {
	Taker  *Taker
	Finder *plan.Finder
	// Past is what earlier holders recorded.
	Past    *history.Snapshots
	Intents *history.Log
	// Lock waits until no other backup takes a snapshot of a volume, named by its provider, and
	// keeps others from it until unlock is called. Nil waits for nothing.
	Lock func(ctx context.Context, volume string) (unlock func(), err error)
	// PodVolumes are the file-system backups; nil where there are none. Final means that all Pods have
	// had their turn.
	PodVolumes PodVolumes
	Final      bool
	// Insist makes a volume without a snapshot an error.
	Insist bool
	// RecordItems is how many volumes a record is about at most, where none has a snapshot.
	RecordItems int
	Stop        plan.StopSignal
	Clock       clock.PassiveClock
	Log         *slog.Logger
}

// Decide decides on volumes that were collected, all of which are durable, one at a time for each
// writer. That a snapshot is taken is durable before the call, and how it came out right after it.
// Other decisions are not durable before the writers are flushed. The error is plan.ErrStopped if
// the run is stopped.
func Decide(ctx context.Context, cfg *Config, volumes map[string]Volume, writers []*partwriter.Writer) error {
	res, _ := cfg.Finder.Catalog.Lookup(plan.Volumes)
	maps.DeleteFunc(volumes, func(name string, _ Volume) bool {
		_, decided := cfg.Past.Decided[name]
		return decided
	})
	queue := make(chan string, len(volumes))
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		queue <- name
	}
	close(queue)
	return panics.ForEach(ctx, len(writers), len(writers), func(ctx context.Context, i int) error {
		out := writers[i]
		for name := range queue {
			if cfg.Stop.Requested() {
				return plan.ErrStopped
			}
			d := volumeDecision{cfg: cfg, out: out, res: &res, name: name, volume: volumes[name]}
			if err := d.decideVolume(ctx); err != nil {
				return err
			}
			if err := d.recordDecisions(); err != nil {
				return err
			}
		}
		return nil
	})
}

// recordDecisions makes decisions durable that are not to be made again, and then unlocks the volume. After an
// error the lock stays with the backup: without a record the next holder does not know whether
// there is a snapshot.
func (d *volumeDecision) recordDecisions() error {
	if err := d.out.Drain(); err != nil {
		return err
	}
	if len(d.out.Record.Snapshots) == 0 && len(d.out.Record.Volumes) < d.cfg.RecordItems {
		return nil // the next holder decides on these again
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	failpoint.Hit("backup-runner/snapshot-recorded")
	if d.unlock != nil {
		d.unlock()
		failpoint.Hit("backup-runner/volume-unlocked")
	}
	return nil
}

// volumeDecision is one volume that is decided on.
type volumeDecision struct {
	cfg    *Config
	out    *partwriter.Writer
	volume Volume
	res    *resource.Resource
	name   string
	unlock func() // nil unless the volume is locked
}

// interruptionOf returns why a failure is not one of the volume, for which the next holder repeats the
// call: a stop, or the end of ctx.
func (c *Config) interruptionOf(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && c.Stop.Requested():
		return plan.ErrStopped // perhaps that is why
	}
	return nil
}

// ErrUnclear is what is known of a snapshot that an earlier holder was about to take.
var ErrUnclear = errors.New("the runner ended around CreateSnapshot, which is not called again: the provider may have an unrecorded snapshot with the tags velero.io/backup and velero.io/pv")

var errGone = errors.New("the volume is gone")
