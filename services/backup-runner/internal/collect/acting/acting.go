// Package acting takes objects through the actions of a backup and stores what the actions made of
// them, each object once. Objects that actions relate to each other form a block.
package acting

import (
	"context"
	"errors"
	"log/slog"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/job/effect"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Config is what the workers of a backup act with. Everything is required but Confirm,
// IsProcessCrash and IsNotSent, and what says so.
type Config struct {
	Actions *actionset.Bound
	Finder  *plan.Finder
	Items   *itemset.Set
	Spools  *itemset.SpoolFiles
	// Past are the calls of earlier holders, whose records ReadRecord reads.
	Past       *history.Calls
	ReadRecord func(ctx context.Context, key string) (checkpoint.Record, error)
	Intents    *history.Log
	// Confirm returns an error if the backup may be another holder's by now; nil means that it
	// never is. It is asked before calls, unless it answered a moment ago.
	Confirm func(ctx context.Context) error
	// IsProcessCrash and IsNotSent are those of actionset.Actions.
	IsProcessCrash func(error) bool
	IsNotSent      func(error) bool
	// Instance is this process, as its Lease names it, where operations may live in it.
	Instance string
	// Operations counts what the calls of all holders began; nil with Again.
	Operations *operation.Counter
	// Again is true where objects are stored again once the operations of the backup have ended: no
	// call begins another.
	Again bool
	// Concurrent is true where several calls may be under way at once.
	Concurrent bool
	// Hooks runs the hooks of blocks that have some, and Reserved reports which objects are
	// processed with those alone. Both are nil where none has.
	Hooks    *podhook.Runner
	Reserved func(key itemset.Key) bool
	// Snapshot takes native snapshots of stored volumes, all of which are durable; nil takes none.
	Snapshot func(ctx context.Context, volumes map[string]volumes.Volume, out *partwriter.Writer) error
	// PodVolumes are waited for before the post hooks of their Pods; nil where there are none.
	PodVolumes actionset.PodVolumes
	Facts      *volumes.Facts
	Remarks    partwriter.VolumeRules
	// References makes what finds references.
	References *reference.Set
	Progress   *partwriter.Counter
	Stop       plan.StopSignal
	Clock      clock.PassiveClock
	Log        *slog.Logger
}

// Pool processes item blocks.
type Pool struct {
	Config
	confirmed claimConfirmation
	caller    *effect.Caller
}

// New returns a pool.
func New(cfg Config) *Pool { return &Pool{Config: cfg, caller: newCaller(&cfg)} }

// Process processes the blocks that arrange sends, one at a time for each writer, and returns when
// all are done, or when the run is stopped. What was stored is not durable before the writers
// are flushed.
func (p *Pool) Process(ctx context.Context, arrange func(context.Context, chan<- Block) error, writers []*partwriter.Writer) error {
	group, ctx := panics.NewGroup(ctx)
	queue := make(chan Block)
	group.Go(func() error {
		defer close(queue)
		return arrange(ctx, queue)
	})
	l := newLanes(p, group, len(writers))
	group.Go(func() error { return l.dispatchBlocks(ctx, queue) })
	for _, out := range writers {
		group.Go(func() error { return (&objectProcessor{pool: p, out: out}).processBlocks(ctx, l) })
	}
	err := group.Wait()
	if p.isStopError(err) {
		return nil
	}
	return err
}

// isStopError reports whether an error means only that the run has to stop.
func (p *Pool) isStopError(err error) bool {
	return p.Stop.Requested() && errors.Is(err, plan.ErrStopped)
}

// processBlock processes a block, all of which goes into one part: what actions relate to an object may be
// known through that object alone, which a later holder does not process again.
func (a *objectProcessor) processBlock(ctx context.Context, b *Block) error {
	if a.pool.Stop.Requested() {
		return nil
	}
	if err := a.prestartBlock(ctx, b); err != nil {
		return err
	}
	for i := range b.Members {
		err := context.Cause(ctx)
		if err == nil {
			err = a.processMember(ctx, &b.Members[i])
		}
		if err == nil {
			err = a.drainPostponed(ctx)
		}
		if err != nil {
			if i > 0 || len(a.later) > 0 || len(b.Hooks) > 0 {
				a.out.Abandon()
			}
			return err
		}
	}
	if a.out.Full() {
		return a.out.Seal()
	}
	return nil
}
