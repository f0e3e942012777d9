// Package queue moves Backups and Restores from submitted to dispatched.
//
// One pass reads everything: new objects are validated and enter the queue, the queue is walked
// in order and what may run is admitted through the ledger, entries of jobs past running leave the
// ledger, hints go out. A pass reads the ledger from the API server, and jobs from a cache that is at
// least as new as the process's own writes. Every write is a compare-and-swap, so an old cache and
// concurrent passes of several replicas cost work and have no other effect.
package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// period is how often a pass runs without being woken; hints of what waits for a runner are
// published again with it.
const period = 15 * time.Second

// Ledger is where jobs are admitted; ledger.Ledger is one.
type Ledger interface {
	Admit(ctx context.Context, e ledger.Entry, limits ledger.Limits, while ...types.UID) (ledger.Entry, error)
	Readmit(ctx context.Context, e ledger.Entry) error
	Withdraw(ctx context.Context, entries ...ledger.Entry) error
	SetIdle(ctx context.Context, e ledger.Entry) error
	Get(ctx context.Context, uid types.UID) (ledger.Entry, bool, error)
	List(ctx context.Context) ([]ledger.Entry, error)
	NextSequences(ctx context.Context, n int, above int64) (first int64, err error)
}

// Publisher sends hints and events; messaging.Client is one.
type Publisher interface {
	Publish(ctx context.Context, what messaging.What, hint *workv1.Hint) error
	PublishEvent(ctx context.Context, event *eventv1.Event) error
}

// Validator checks and completes objects; validate.Validator is one.
type Validator interface {
	Backup(ctx context.Context, b *velerov1.Backup) (validate.Problems, error)
	// ApplyPlan gives a new backup that executes a plan the spec of the plan.
	ApplyPlan(ctx context.Context, b *velerov1.Backup) (validate.Problems, error)
	// Away is the reason why the location of a queued backup is unavailable for now, else nothing.
	Away(ctx context.Context, b *velerov1.Backup) (string, error)
	Restore(ctx context.Context, r *velerov1.Restore) (validate.Problems, error)
	// Source judges the backup of a restore that was valid before.
	Source(ctx context.Context, r *velerov1.Restore) (validate.Problems, error)
	// Targets returns the namespaces a valid restore writes to, sorted; an error means that its
	// backup could not be read.
	Targets(ctx context.Context, r *velerov1.Restore) ([]string, error)
	// Namespaces returns the live namespaces, and those of them labelled as excluded from every
	// backup.
	Namespaces(ctx context.Context) (live, excluded []string, err error)
	// Forget makes what was read of the cluster be read anew: every pass judges by what is not
	// older than the objects that it judges.
	Forget()
}

// Metrics counts the jobs that the Scheduler ends, and takes the time of walks along the queue.
type Metrics interface {
	// Ended counts a Backup or Restore that got a terminal phase.
	Ended(obj client.Object)
	// QueueWalked takes how long it took to order the queue, to decide about each job in it and to
	// start what may start.
	QueueWalked(took time.Duration)
}

// Events records what happened to an object, without waiting for anything; an
// events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what a Scheduler works with.
type Config struct {
	Reader client.Reader // uncached
	// Jobs lists the jobs that have not ended, and may list others; see [NewJobCache]. Nil is Reader.
	Jobs      client.Reader
	Client    client.Client
	Namespace string
	Ledger    Ledger
	Publisher Publisher
	Validator Validator
	// Limits are asked for in every pass.
	Limits func(context.Context) (ledger.Limits, error)
	// Ageing is after how long of waiting the class of a backup rises by one; 0 is never.
	Ageing time.Duration
	// LocationTimeout is how long a queued backup waits for a location that is unavailable, as one
	// process observes it; 0 is without end.
	LocationTimeout time.Duration
	// ClaimTimeout is the runners'. Within it who runs a job finds out that its object is gone, and
	// does nothing more for it.
	ClaimTimeout time.Duration
	Metrics      Metrics
	Events       Events
	Tracer       trace.TracerProvider
	Clock        clock.WithTicker
	Log          *slog.Logger
}

// Scheduler runs passes. Wake may be called from anywhere, Run once.
type Scheduler struct {
	Config
	wake chan struct{}
	idle bool // the last pass found no job and an empty ledger; belongs to Run

	validations errgroup.Group // of restores
	validating  sync.Map       // their UIDs

	traces    *jobTraces
	hints     *hintSender
	reasons   *waitReasons
	refused   *writeRefusals
	observed  *observations
	misplaced []queuePlacement // positions to be written, front first; belongs to Run
}

// New returns a Scheduler.
func New(cfg Config) *Scheduler {
	if cfg.Jobs == nil {
		cfg.Jobs = cfg.Reader
	}
	jobs := newOwnWrites(cfg.Client, cfg.Jobs)
	cfg.Jobs, cfg.Client = jobs, jobs
	s := &Scheduler{
		Config: cfg, wake: make(chan struct{}, 1),
		traces: &jobTraces{cfg.Tracer.Tracer("github.com/holdfast-io/holdfast/services/queue-scheduler")},
		hints:  &hintSender{publisher: cfg.Publisher, events: cfg.Events, clock: cfg.Clock, log: cfg.Log},
		reasons: &waitReasons{
			reported: map[types.UID]reasonKind{}, limiter: rate.NewLimiter(eventRate, eventBurst),
			clock: cfg.Clock, events: cfg.Events, log: cfg.Log,
		},
		refused:  &writeRefusals{clock: cfg.Clock, byVersion: map[string]writeRefusal{}},
		observed: &observations{clock: cfg.Clock, current: map[types.UID]time.Time{}},
	}
	s.validations.SetLimit(validationsAtOnce)
	return s
}

// Wake requests a pass soon; two requests before it are one.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run makes passes until ctx ends and returns nil. Between them it writes positions.
func (s *Scheduler) Run(ctx context.Context) error {
	failpoint.Hit("queue-scheduler/duty-acquired")
	ticker := s.Clock.NewTicker(period)
	defer ticker.Stop()
	positionTicker := s.Clock.NewTicker(positionEvery)
	defer positionTicker.Stop()
	defer func() { _ = s.validations.Wait() }() // they end with ctx and return no error
	pass := func(due bool) {
		if err := s.runPass(ctx, due); err != nil && ctx.Err() == nil {
			s.Log.Warn("Failed to complete queue pass; will retry", "error", err)
		}
	}
	for pass(true); ; {
		var placing <-chan time.Time
		if len(s.misplaced) > 0 {
			placing = positionTicker.C()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-placing:
			s.placeNext(ctx)
		case <-s.wake:
			pass(false)
		case <-ticker.C():
			if !s.idle { // else a change of an object wakes the scheduler
				pass(true)
			}
		}
	}
}

// runPass reads everything once; due publishes hints again. Errors are collected: the failure of one
// object does not hold up the others, except those behind it.
func (s *Scheduler) runPass(ctx context.Context, due bool) error {
	s.idle = false
	view, err := s.readView(ctx, s.Jobs)
	if err != nil {
		return err
	}
	s.Validator.Forget()
	var errs []error
	errs = append(errs, s.releaseEnded(ctx, view), s.releaseIdle(ctx, view))
	lost := s.readmitJobs(ctx, view)
	errs = append(errs, lost)
	errs = append(errs, s.enqueueNew(ctx, view), s.completeDryRuns(ctx, view))
	if lost == nil { // else jobs run that nothing would keep others away from
		errs = append(errs, s.dispatchRestores(ctx, view))
		errs = append(errs, s.admitBackups(ctx, view))
	}
	if due {
		errs = append(errs, s.hints.republishHints(ctx, view))
	}
	s.renumberView(view)
	s.reasons.forgetReasons(view)
	if view.moved { // a job may start that waited in this pass: begin at the front again
		s.Wake()
	} else {
		s.observed.endPass()
	}
	err = errors.Join(errs...)
	s.idle = err == nil && len(view.unfinished) == 0 && len(view.entries) == 0
	return err
}
