package schedule

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func (b *bed) runScheduler(s *Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	return func() { cancel(); group.Wait() }
}

func (b *bed) requireEventually(what string, condition func() bool) {
	b.t.Helper()
	require.Eventually(b.t, condition, time.Minute, time.Millisecond, what)
}

// Run sleeps until the slot, not for a whole period.
func TestRunWakesForTheSlot(t *testing.T) {
	b := newBed(t)
	b.createSchedule("minutely", "* * * * *", allowConcurrent)
	b.clock.Step(20 * time.Second) // ten seconds before the first slot
	defer b.runScheduler(b.newScheduler(interceptor.Funcs{}))()
	for n := range 5 {
		b.requireEventually("asleep", b.clock.HasWaiters)
		require.Len(t, b.backupNames(), n)
		b.clock.Step(10 * time.Second)
		b.requireEventually("the slot's backup", func() bool { return len(b.backupNames()) == n+1 })
		for range 5 {
			b.requireEventually("asleep", b.clock.HasWaiters)
			b.clock.Step(10 * time.Second)
		}
	}
}

// An API server that is away costs a slot nothing but time, and a change of a Schedule needs no
// period to be seen.
func TestRunGoesOnAfterErrorsAndWhenWoken(t *testing.T) {
	b := newBed(t)
	var down atomic.Bool
	down.Store(true)
	s := b.newScheduler(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if down.Load() {
				return errors.New("injected")
			}
			return c.List(ctx, list, opts...)
		},
	})
	b.createSchedule("hourly", "0 * * * *", nil)
	b.clock.Step(time.Hour)
	defer b.runScheduler(s)()
	b.requireEventually("asleep", b.clock.HasWaiters)
	down.Store(false)
	b.clock.Step(period)
	b.requireEventually("caught up", func() bool { return len(b.backupNames()) == 1 })

	b.createSchedule("more", "0 * * * *", func(o *velerov1.Schedule) { o.CreationTimestamp.Time = start })
	s.Wake()
	s.Wake()
	b.requireEventually("seen", func() bool { return len(b.backupNames()) == 2 })
}

func TestWhichBackupsWakeTheScheduler(t *testing.T) {
	backup := func(phase velerov1.BackupPhase) *velerov1.Backup {
		b := &velerov1.Backup{}
		b.Labels = map[string]string{"velero.io/schedule-name": "s"}
		b.Status.Phase = phase
		return b
	}
	require.Len(t, ofSchedule(t.Context(), backup("")), 1)
	require.Empty(t, ofSchedule(t.Context(), &velerov1.Backup{}))
	p := endedBackups()
	require.False(t, p.Create(event.CreateEvent{Object: backup("")}))
	require.True(t, p.Delete(event.DeleteEvent{Object: backup("InProgress")}))
	require.True(t, p.Update(event.UpdateEvent{ObjectOld: backup("InProgress"), ObjectNew: backup("Finalizing")}))
	require.False(t, p.Update(event.UpdateEvent{ObjectOld: backup("Queued"), ObjectNew: backup("InProgress")}))
	require.False(t, p.Update(event.UpdateEvent{ObjectOld: backup("Finalizing"), ObjectNew: backup("Completed")}))
}
