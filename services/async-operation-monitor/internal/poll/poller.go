// Package poll polls actions for the progress of a job's operations, and handles those that end,
// fail, time out or are cancelled.
//
// The end of an operation, the intent to cancel it, and the answer are durable, as records of
// package operation. The rest is in the memory of a Job, which a restart loses: how far an
// operation is, when it is polled again, and how often a call failed.
package poll

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

const (
	// atOnce is how many calls about the progress of the operations of one action are made at once,
	// for all jobs of the process, beside one for each job.
	atOnce = 8
	// cancelsAtOnce is the same for calls to cancel, which may take as long as the grace period.
	cancelsAtOnce = 32
	// window is how long a poll waits for the calls that it began. What is answered later counts in
	// the next poll.
	window = 2 * time.Second
	// callLimit bounds a call about the progress of an operation.
	callLimit = 30 * time.Second
)

// Metrics counts; safe for concurrent use.
type Metrics interface {
	// Polled counts a call: "running", "ended", "failed" or "unknown".
	Polled(result string, took time.Duration)
	// Ended counts an operation: "Completed" or "Failed".
	Ended(result string)
	// Stalled counts an operation that makes no progress.
	Stalled()
}

// Config is what a Poller works with. Every field is required unless its comment states otherwise.
type Config struct {
	Actions *operation.Actions
	Metrics Metrics
	Clock   clock.WithTicker
	Log     *slog.Logger
	// Frequency is the pause between two calls about an operation, Frequencies by the name of the
	// action that has another one.
	Frequency   time.Duration
	Frequencies map[string]time.Duration
	// Timeouts are by the name of the action, and replace the timeout of the job.
	Timeouts map[string]time.Duration
	// Grace is how long an operation has to end after its action was called to cancel it.
	Grace time.Duration
	// Stall is after how long without a change an operation makes no progress; 0 is never.
	Stall time.Duration
}

// Poller makes the calls about the operations of all jobs of this process. Safe for concurrent use.
type Poller struct {
	Config
	progress, cancels *callSlots
	life              context.Context //nolint:containedctx // that of all calls, which outlive the polls that began them
	end               context.CancelFunc
	calls             sync.WaitGroup

	mu     sync.Mutex
	closed bool           // no poll begins any more
	polls  sync.WaitGroup // only they begin calls
}

// ErrClosed means that a poll came after Close.
var ErrClosed = errors.New("the process is ending")

// New returns a Poller, which outlives ctx. Close ends it.
func New(ctx context.Context, cfg Config) *Poller {
	p := &Poller{Config: cfg, progress: newSlots(atOnce), cancels: newSlots(cancelsAtOnce)}
	p.life, p.end = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// Close ends the polls and calls under way and waits for them. What is polled afterwards fails.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.polls.Wait()
	p.calls.Wait()
}

// beginPoll returns the context of a poll, and what ends it; an error once the Poller is closed.
func (p *Poller) beginPoll(ctx context.Context) (context.Context, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	p.polls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		p.polls.Done()
	}, nil
}

// pollInterval is the pause between two calls about an operation.
func (p *Poller) pollInterval(op *operation.Operation) time.Duration {
	if d, ok := p.Frequencies[op.Action]; ok {
		return d
	}
	return p.Frequency
}

// cancelPollInterval is the pause between two calls about an operation that is being cancelled.
func (p *Poller) cancelPollInterval(op *operation.Operation) time.Duration {
	return min(p.pollInterval(op), max(p.Grace/10, time.Second)) //nolint:mnd // ten polls per grace
}

// callBounded makes a call that ends with the process or after a limit.
func (p *Poller) callBounded(ctx context.Context, limit time.Duration, call func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	call(ctx)
}
