// Package offer runs the jobs a service finds by looking at the objects: those whose hint could not be sent, had no effect for long, or was never
// needed because their holder died. Hints stay the ordinary way, and a claim still decides who works on a job.
package offer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/claim"
)

const (
	// Period is how often a service looks at a job that nobody works on, and sends its hint again.
	Period = 15 * time.Second
	// Overdue is how long a job may wait for the effect of its hint: the queue may hold one that it never delivers, and then refuses every other.
	Overdue = 2 * Period
	// failurePause is how long a job whose run failed here is not run again without a message: it was handed over at once, and is seen at once.
	failurePause = 10 * time.Second
	// room is how many jobs may wait to be run; others are found by the next look.
	room = 64
)

// Job is an object this process should try to work on.
type Job struct {
	Name string
	UID  types.UID
}

// Config is what a Desk works with; every field is required.
type Config struct {
	// Run works on a job until it is done, somebody else holds it (an error that wraps *claim.HeldError), or it has to be tried again.
	Run func(ctx context.Context, name string, uid types.UID) error
	// AtOnce bounds the jobs run at once, at least 1.
	AtOnce int
	Clock  clock.PassiveClock
	Log    *slog.Logger
}

// Desk takes offers and runs them. All methods are safe for concurrent use.
type Desk struct {
	config  Config
	offered chan Job

	mu      sync.Mutex
	waiting map[types.NamespacedName]time.Time // since when each object is seen waiting
	failed  map[types.UID]time.Time            // when the last run of each job failed here
}

// New returns a Desk.
func New(config Config) *Desk {
	config.AtOnce = max(config.AtOnce, 1)
	return &Desk{
		config: config, offered: make(chan Job, room),
		waiting: map[types.NamespacedName]time.Time{}, failed: map[types.UID]time.Time{},
	}
}

// Waits notes whether an object waits for somebody to work on it, and returns for how long it has.
func (d *Desk) Waits(key types.NamespacedName, waits bool) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !waits {
		delete(d.waiting, key)
		return 0
	}
	first, known := d.waiting[key]
	if !known {
		first = d.config.Clock.Now()
		d.waiting[key] = first
	}
	return d.config.Clock.Since(first)
}

// Offer asks for a run. What finds no room, or failed here just now, is dropped: the next look offers it again.
func (d *Desk) Offer(job Job) {
	if d.failedLately(job.UID) {
		return
	}
	select {
	case d.offered <- job:
	default:
	}
}

// Offered is what has been offered and not been begun, for tests and for whoever runs the jobs in another way.
func (d *Desk) Offered() <-chan Job { return d.offered }

// Serve runs offered jobs until ctx ends, then waits for those it began, and returns nil.
func (d *Desk) Serve(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	done := make(chan struct{}, d.config.AtOnce)
	for running := 0; ; {
		offered := d.offered
		if running == d.config.AtOnce {
			offered = nil // other replicas may have room for them
		}
		select {
		case <-ctx.Done():
			return nil
		case <-done:
			running--
		case job := <-offered:
			running++
			group.Go(func() {
				defer func() { done <- struct{}{} }()
				d.Run(ctx, job)
			})
		}
	}
}

// Run runs one job now, whatever else runs, and survives what the job does.
func (d *Desk) Run(ctx context.Context, job Job) {
	defer func() {
		if p := recover(); p != nil {
			d.fail(job.UID)
			d.config.Log.ErrorContext(ctx, "job panicked", "name", job.Name, "panic", p)
		}
	}()
	var held *claim.HeldError
	if err := d.config.Run(ctx, job.Name, job.UID); err != nil && !errors.As(err, &held) && ctx.Err() == nil {
		d.fail(job.UID)
		d.config.Log.WarnContext(ctx, "run failed, the next look tries again", "name", job.Name, "error", err)
	}
}

func (d *Desk) failedLately(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.config.Clock.Now()
	maps.DeleteFunc(d.failed, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= failurePause })
	_, ok := d.failed[uid]
	return ok
}

func (d *Desk) fail(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed[uid] = d.config.Clock.Now()
}
