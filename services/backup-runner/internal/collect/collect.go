package collect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/snapshot"
)

// Lister lists raw objects; rawlist.Client is one.
type Lister interface {
	List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error
}

// Config is what a process collects with. Zero sizes mean the defaults named.
type Config struct {
	Lister Lister
	Clock  clock.WithTicker
	Log    *slog.Logger
	// Workers is the number of lists read at once. Default 4.
	Workers int
	// PartBytes and PartItems are when a part is sealed, at the next page end.
	// Defaults 8 MiB compressed and 1,000: what is not sealed is lost with the
	// process.
	PartBytes int64
	PartItems int
	// BlockWorkers is the number of item blocks processed at once. Default 1, as
	// in Velero: not every plugin written for it can take more.
	BlockWorkers int
}

func (c *Config) setDefaults() {
	if c.Workers <= 0 {
		c.Workers = 4
	}
	if c.PartBytes <= 0 {
		c.PartBytes = 8 << 20
	}
	if c.PartItems <= 0 {
		c.PartItems = 1000
	}
	if c.BlockWorkers <= 0 {
		c.BlockWorkers = 1
	}
}

// Job is one backup to collect.
type Job struct {
	Backup *velerov1.Backup
	// Epoch is the claim's; it fences parts and checkpoints.
	Epoch   int64
	Filter  *selection.Filter
	Catalog *resource.Catalog
	// Discover returns a newer Catalog, and Filter with its names. Nil means that
	// there is no other.
	Discover func(ctx context.Context) (*resource.Catalog, *selection.Filter, error)
	Cut      *cut.Cut
	Store    objectstore.Store
	// Dir is an empty directory for the parts being written.
	Dir string
	// LiveNamespaces counts the namespaces of the cluster, to decide between one
	// list of all namespaces and one list for each. It is asked once per backup.
	LiveNamespaces func(ctx context.Context) (int, error)
	// Actions look at objects before they are stored.
	Actions Actions
	// Confirm returns an error if the backup may be another holder's by now; nil
	// means that it never is. It is asked before calls that no epoch fences, unless
	// it answered a moment ago.
	Confirm func(ctx context.Context) error
	// Snapshots takes snapshots of volumes if the backup wants any, or did when it
	// began; nil takes none.
	Snapshots *snapshot.Taker
	// LockVolume waits until no other backup takes a snapshot of a volume, named by its
	// provider, and keeps others from it until unlock is called. Nil waits for nobody.
	LockVolume func(ctx context.Context, volume string) (unlock func(), err error)
	// Progress is updated while Run works.
	Progress *Progress
	// Stop, when closed, ends the run at the next page end, with everything
	// durable that was listed. Nil means never.
	Stop <-chan struct{}
}

// ErrStopped means that the run was told to stop: what was listed is recorded,
// and another holder goes on behind it.
var ErrStopped = errors.New("told to stop")

// Result is what was collected: the keys of the checkpoints, one per part, and
// sums over the parts.
type Result struct {
	Checkpoints             []string
	Items, Warnings, Errors int
}

// Run collects everything that earlier holders of the backup did not record.
// Errors of single kinds and objects are counted in the parts; an error means
// that nothing can be collected at all or any longer: the work dir or the bucket
// fails for good, the epoch was closed (journal.ErrFenced), ctx ended, or
// ErrStopped. The epoch must not have been used before.
func Run(ctx context.Context, cfg Config, job Job) (Result, error) {
	cfg.setDefaults()
	r := &run{Config: cfg, Job: job, facts: newFacts(job.Backup), again: make(chan struct{}, 1)}
	uploads, cancel := context.WithCancel(ctx)
	workers := make([]*worker, max(cfg.Workers, cfg.BlockWorkers))
	for i := range workers {
		workers[i] = &worker{run: r, id: i, uploads: uploads}
	}
	defer func() {
		cancel() // after a failure nothing more is worth uploading
		for _, w := range workers {
			w.discard()
		}
		r.release()
	}()
	lists, done := r.untilStopped(ctx)
	defer done()
	if err := r.collect(lists, workers); err != nil {
		return Result{}, err
	}
	return r.result, nil
}

// run is the state of one job.
type run struct {
	Config
	Job
	facts   *facts
	records *checkpoint.Log
	past    past
	bound   bound
	calls   calls
	mine    confirmation
	shots   shots
	again   chan struct{} // held by who repeats a call
	held    heldFiles
	extras  atomic.Bool // objects were stored that no list selected
	results
}

func (r *run) collect(ctx context.Context, workers []*worker) (err error) {
	r.records, err = checkpoint.Open(ctx, r.Store, r.Backup.Name, string(r.Backup.UID), r.Epoch)
	if err != nil {
		return err
	}
	if err := r.restore(ctx); err != nil {
		return err
	}
	compared := r.compare(ctx)
	defer compared()
	r.chooseSnapshots()
	first := workers[0]
	if r.past.start == nil {
		if err := first.begin(ctx); err != nil {
			return err
		}
	} else if err := first.goOn(ctx); err != nil {
		return err
	}
	planned := plan(r.Filter, r.Catalog, r.past.start.LiveNamespaces)
	if err := first.vanished(planned); err != nil {
		return err
	}
	planned = r.remaining(planned)
	if err := r.pass(ctx, workers, r.units(planned)); err != nil {
		return err
	}
	compared()
	if err := r.act(ctx, workers); err != nil {
		return err
	}
	// What these take depends on what was collected before them, which must not
	// be lost when they are done: all of it is durable.
	failpoint.Hit("backup-runner/first-pass-done")
	second := slices.Concat(r.definitions(), r.volumes(), r.namespaces())
	for visited := map[string]bool{}; len(second) > 0; second = r.late(visited) {
		if err := r.pass(ctx, workers, slices.Values(second)); err != nil {
			return err
		}
		if err := r.act(ctx, workers); err != nil {
			return err
		}
		for i := range second {
			visited[second[i].id()] = true
		}
	}
	failpoint.Hit("backup-runner/second-pass-done")
	if err := r.snapshots(ctx, workers); err != nil {
		return err
	}
	r.Actions.close()
	return first.end()
}

// pass collects the units and makes everything durable.
func (r *run) pass(ctx context.Context, workers []*worker, units iter.Seq[unit]) error {
	if err := r.each(ctx, workers, units); err != nil {
		return err
	}
	return r.settle(ctx, workers)
}

// settle makes durable what the workers did.
func (r *run) settle(ctx context.Context, workers []*worker) error {
	if err := parallel(ctx, workers, func(_ context.Context, w *worker) error { return w.flush() }); err != nil {
		return err
	}
	if r.stopping() {
		return ErrStopped
	}
	return nil
}

// each lets the workers collect the units and returns when all are done, or when
// the run is told to stop. A unit is made when a worker is free for it.
func (r *run) each(ctx context.Context, workers []*worker, units iter.Seq[unit]) error {
	next, end := iter.Pull(units)
	defer end()
	var turn sync.Mutex
	take := func() (unit, bool) {
		turn.Lock()
		defer turn.Unlock()
		return next()
	}
	return parallel(ctx, workers[:r.Workers], func(ctx context.Context, w *worker) error {
		for u, ok := take(); ok; u, ok = take() {
			err := context.Cause(ctx)
			if err == nil && !r.stopping() {
				err = w.unit(ctx, u)
			}
			switch {
			case r.stopping() && (err == nil || errors.Is(err, ErrStopped)):
				return nil // the others come to the end of their pages
			case err != nil:
				return fmt.Errorf("collect %s: %w", u.id(), err)
			}
		}
		return nil
	})
}

// errPanic stands for a defect in the code of a worker, which must cost the job
// and not the process.
var errPanic = errors.New("internal error")

func parallel(ctx context.Context, workers []*worker, fn func(context.Context, *worker) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error { return w.run.safely(func() error { return fn(ctx, w) }) })
	}
	return group.Wait()
}

// safely turns a panic of fn into an error.
func (r *run) safely(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("worker panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return fn()
}
