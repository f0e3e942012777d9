package collect

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// What callers give to a collection, and get from it.
type (
	// Lister lists raw objects; rawlist.Client is one.
	Lister = unitLister
	// Actions are called for objects before they are stored.
	Actions = actionset.Actions
	// Lines takes what plugins log.
	Lines = partwriter.PluginLines
	// Progress counts objects while Run works.
	Progress = partwriter.Counter
	// Counts is one reading of a Progress.
	Counts = partwriter.Counts
)

// ErrStopped means that the run was stopped: what was listed is recorded, and another holder
// resumes behind it.
var ErrStopped = plan.ErrStopped

// Config is what a process collects with.
type Config struct {
	Lister Lister
	Clock  clock.WithTicker
	Log    *slog.Logger
	// Workers is the number of lists read at once.
	Workers int
	// PartBytes and PartItems are when a part is sealed, at the next page end. What is
	// not sealed is lost with the process.
	PartBytes int64
	PartItems int
	// BlockWorkers is the number of item blocks processed at once. Not every plugin
	// written for Velero can take more than 1.
	BlockWorkers int
}

// Job is one backup to collect.
type Job struct {
	Backup *velerov1.Backup
	// Epoch is the claim's; it fences parts and checkpoints.
	Epoch int64
	// Instance is this process, as its Lease names it, where operations may live in it.
	Instance string
	Filter   *selection.Filter
	Catalog  *resource.Catalog
	// Discover returns a newer Catalog, and Filter with its names. Nil means that there is no
	// other.
	Discover func(ctx context.Context) (*resource.Catalog, *selection.Filter, error)
	Cut      *cut.Cut
	Store    objectstore.Store
	// Dir is an empty directory for the parts being written.
	Dir string
	// LiveNamespaces counts the namespaces of the cluster, to decide between one list of all
	// namespaces and one list for each. It is asked once per backup.
	LiveNamespaces func(ctx context.Context) (int, error)
	Actions        Actions
	// Hooks are the hooks of the backup's spec, and Exec runs hooks. Without Exec none runs.
	Hooks *hook.Backup
	Exec  podhook.Executor
	// Opened gets the Pods whose hooks begin, until their post hooks have run; nil keeps none.
	Opened *podhook.Opened
	// RanEarly is that of podhook.Config.
	RanEarly bool
	// Confirm returns an error if the backup may be another holder's by now; nil means that it
	// never is. It is asked before calls that no epoch fences, unless it answered a moment ago.
	Confirm func(ctx context.Context) error
	// Progressed is called once something is stored and recorded that no later holder stores again;
	// nil is not called.
	Progressed func()
	// Snapshots takes snapshots of volumes if the backup's spec selects any, or did when it began; nil
	// takes none.
	Snapshots *volumes.Taker
	// LockVolume waits until no other backup takes a snapshot of a volume, named by its provider,
	// and keeps others from it until unlock is called. Nil waits for nothing.
	LockVolume func(ctx context.Context, volume string) (unlock func(), err error)
	Progress   *Progress
	// Stop, when closed, ends the run at the next page end, with everything durable that was
	// listed. Nil means never.
	Stop <-chan struct{}
}

// pageGrace is how long a list may take to come to the end of its page when the run is stopped.
// What it read of the page then is dropped.
const pageGrace = 2 * time.Second

// lastLimit bounds the write of what calls had begun when a run ended.
const lastLimit = 5 * time.Second

// lastOutcomes records how calls ended that no record has, for any end of the run: the operations
// that they began continue. It is best effort; the holder of a later epoch fences it.
func (r *collectRun) lastOutcomes(ctx context.Context) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	defer done()
	if err := r.recordOutcomes(ctx); err != nil {
		r.cfg.Log.WarnContext(ctx, "Failed to record the outcomes of plugin calls and hooks; the next holder of the backup does not know them", "error", err)
	}
}

// recordOutcomes records all outcomes that no record has.
func (r *collectRun) recordOutcomes(ctx context.Context) error {
	if r.intents == nil || !r.intents.Pending() {
		return nil
	}
	_, err := r.intents.Append(ctx, checkpoint.Record{})
	return err
}

// Run collects everything that earlier holders of the backup did not record. Errors of single kinds
// and objects are counted in the parts; an error means that nothing can be collected at all or any
// longer: the work dir or the bucket fails for good, the epoch was closed (journal.ErrFenced), ctx
// ended, or ErrStopped. The epoch must not have been used before.
func Run(ctx context.Context, cfg Config, job Job) (Result, error) {
	uploads, cancel := context.WithCancel(ctx)
	r := newCollectRun(uploads, cfg, job)
	defer func() {
		cancel() // after a failure nothing more is worth uploading
		r.workers.discardUnfinished()
		r.spools.Remove()
		r.lastOutcomes(ctx)
	}()
	lists, done := engine.WithStopGrace(ctx, cfg.Clock, job.Stop, pageGrace, ErrStopped)
	defer done()
	if err := r.collectStages(lists); err != nil {
		return Result{}, err
	}
	r.results.sum.Operations = r.recordedOperations()
	return r.results.sum, nil
}
