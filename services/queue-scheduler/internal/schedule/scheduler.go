package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// period is how often a pass runs without being woken and without a slot ahead.
const period = 15 * time.Second

// Events records what happened to an object; an events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what a Scheduler works with.
type Config struct {
	Reader    client.Reader // uncached
	Jobs      client.Reader // of Backups that have not ended, at least; may be a cache
	Client    client.Client
	Namespace string
	// SkipImmediately is for Schedules that do not set it.
	SkipImmediately bool
	Events          Events
	// CountBackup counts a Backup that was made by a schedule.
	CountBackup func(schedule string)
	Clock       clock.Clock
	Log         *slog.Logger
}

// Scheduler makes passes. Wake may be called from anywhere, Run once at a time.
type Scheduler struct {
	Config
	wake     chan struct{}
	reported map[types.UID]time.Time // slots that wait and were logged
}

// New returns a Scheduler.
func New(cfg Config) *Scheduler {
	return &Scheduler{Config: cfg, wake: make(chan struct{}, 1), reported: map[types.UID]time.Time{}}
}

// Wake requests a pass soon; two requests before it are one.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run makes passes until ctx ends and returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	for {
		next, err := s.runPass(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("Failed to complete schedule pass; will retry", "error", err)
		}
		timer := s.Clock.NewTimer(s.waitUntil(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-s.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// waitUntil is how long to wait for a time, at most a period; zero is no time at all.
func (s *Scheduler) waitUntil(next time.Time) time.Duration {
	if next.IsZero() {
		return period
	}
	return min(period, max(0, next.Sub(s.Clock.Now())))
}

// runPass checks every Schedule once and returns when the next slot starts, zero for none. Schedules
// are read before the Backups and written only as they were read: a slot that another replica
// reserved in between is a conflict.
func (s *Scheduler) runPass(ctx context.Context) (time.Time, error) {
	list := &velerov1.ScheduleList{}
	if err := s.Reader.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return time.Time{}, fmt.Errorf("list schedules: %w", err)
	}
	p := &schedulePass{Scheduler: s, now: s.Clock.Now()}
	var next time.Time
	var errs []error
	for i := range list.Items {
		schedule := &list.Items[i]
		if schedule.DeletionTimestamp != nil {
			continue
		}
		start, err := p.handleSchedule(ctx, schedule)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", schedule.Name, err))
		}
		if !start.IsZero() && (next.IsZero() || start.Before(next)) {
			next = start
		}
	}
	s.forgetGone(list)
	return next, errors.Join(errs...)
}

// forgetGone drops notes about Schedules that are gone.
func (s *Scheduler) forgetGone(list *velerov1.ScheduleList) {
	kept := make(map[types.UID]time.Time, len(s.reported))
	for i := range list.Items {
		if slot, ok := s.reported[list.Items[i].UID]; ok {
			kept[list.Items[i].UID] = slot
		}
	}
	s.reported = kept
}
