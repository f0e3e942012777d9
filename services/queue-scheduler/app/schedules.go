package app

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/schedule"
)

// newScheduler returns the duty that makes Backups from Schedules, and has counts keep up with these.
func (a *App) newScheduler(counts *count.Schedules, jobs client.Reader) (*schedule.Scheduler, error) {
	c, rt := a.config, a.runtime
	reader, writer, namespace := rt.Manager().GetAPIReader(), rt.Manager().GetClient(), c.Options.Namespace
	made := counts.Counter("holdfast_schedule_backups_total", "Backups made by a schedule.") // Velero 1.18 has no metric for this
	if err := counts.Err(); err != nil {
		return nil, err
	}
	scheduler := schedule.New(schedule.Config{
		Reader: reader, Jobs: jobs, Client: writer, Namespace: namespace, SkipImmediately: c.ScheduleSkipImmediately,
		Events: rt.Manager().GetEventRecorder(Name), CountBackup: made.Inc, Clock: c.Clock, Log: c.Log,
	})
	if err := scheduler.Watch(rt.Manager(), Name+"-schedule"); err != nil {
		return nil, fmt.Errorf("controller schedule: %w", err)
	}
	if err := counts.Watch(rt.Manager(), Name+"-schedules"); err != nil {
		return nil, err
	}
	return scheduler, nil
}
