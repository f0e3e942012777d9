package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

var errInjected = errors.New("injected")

// line is a replica's connection to the API server, which a test can break: at its n-th write from
// now on (0 is never).
type line struct {
	at     int                                                 // which write
	broken func(ctx context.Context, write func() error) error // what happens instead
	list   func(list client.ObjectList) bool                   // answers a list instead of the server
}

func (l *line) writeOverLine(ctx context.Context, do func() error) error {
	if l.at--; l.at == 0 {
		return l.broken(ctx, do)
	}
	return do()
}

func (l *line) interceptFuncs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return l.writeOverLine(ctx, func() error { return c.Create(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return l.writeOverLine(ctx, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if l.list != nil && l.list(list) {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	}
}

// The three ways a write can go wrong.
func loseWrite(_ context.Context, _ func() error) error { return errInjected }
func loseAnswer(_ context.Context, write func() error) error {
	return errors.Join(errInjected, write())
}
func failConflict(context.Context, func() error) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "schedules"}, "s", errInjected)
}

// A replica that decided long ago that nothing runs must not start a second backup beside one that
// another replica has started since.
func TestADecisionFromBeforeAPauseIsNotCarriedOut(t *testing.T) {
	b := newBed(t)
	b.createSchedule("minutely", "* * * * *", nil)
	l := &line{}
	sleepy, awake := b.newScheduler(l.interceptFuncs()), b.newScheduler(interceptor.Funcs{})
	b.runPass(awake, 0)
	b.clock.Step(30 * time.Second)
	hold, done := newGate(), make(chan error, 1)
	l.at, l.broken = 1, func(ctx context.Context, do func() error) error { return errors.Join(hold.awaitGate(ctx), do()) }
	go func() { _, err := sleepy.runPass(t.Context()); done <- err }()
	<-hold.reached
	b.clock.Step(5 * time.Minute)
	b.runPass(awake, 0)       // one backup for all that was missed, the sleepy one's slot too
	b.clock.Step(time.Minute) // the next slot is due, and its backup must wait
	close(hold.open)
	require.NoError(t, <-done, "a conflict, which the next pass resolves")
	b.runPass(sleepy, 0)
	require.Equal(t, []string{"minutely-20260506070600"}, b.backupNames())
}

// A cache that is behind does not show the backup of the last slot: the next one waits all the same.
func TestACacheThatIsBehindStartsNoSecondBackup(t *testing.T) {
	b := newBed(t)
	b.createSchedule("minutely", "* * * * *", nil)
	s := b.newScheduler(interceptor.Funcs{})
	s.Jobs = interceptor.NewClient(b.c, (&line{list: func(client.ObjectList) bool { return true }}).interceptFuncs())
	for range 3 {
		b.runPass(s, time.Minute)
	}
	require.Equal(t, []string{"minutely-20260506070100"}, b.backupNames())
	b.finishBackups(velerov1.BackupPhaseCompleted)
	b.runPass(s, 0)
	require.Len(t, b.backupNames(), 2)
}

func TestAFailedCreationIsRepeatedAndTold(t *testing.T) {
	b := newBed(t)
	b.createSchedule("hourly", "0 * * * *", nil)
	var down atomic.Bool
	down.Store(true)
	s := b.newScheduler(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if down.Load() {
				return errInjected
			}
			return c.Create(ctx, o, opts...)
		},
	})
	b.clock.Step(time.Hour)
	_, err := s.runPass(t.Context())
	require.ErrorContains(t, err, "schedule hourly: create backup hourly-20260506080000: injected")
	require.Equal(t, 1, b.told.countReason("BackupNotCreated"))
	down.Store(false)
	b.runPass(b.newScheduler(interceptor.Funcs{}), time.Minute) // another replica keeps the promise
	require.Equal(t, []string{"hourly-20260506080000"}, b.backupNames())
	require.NotContains(t, b.getSchedule("hourly").Annotations, "holdfast.io/pending-slot")
}

func TestOneScheduleInTroubleDoesNotHoldUpTheOthers(t *testing.T) {
	b := newBed(t)
	b.createSchedule("a-broken", "0 * * * *", nil)
	b.createSchedule("b-well", "0 * * * *", nil)
	l := &line{at: 1, broken: loseWrite}
	b.clock.Step(time.Hour)
	_, err := b.newScheduler(l.interceptFuncs()).runPass(t.Context())
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, []string{"b-well-20260506080000"}, b.backupNames())
}

func TestSomebodyElsesBackupOfTheSameName(t *testing.T) {
	b := newBed(t)
	b.createSchedule("hourly", "0 * * * *", nil)
	theirs := &velerov1.Backup{}
	theirs.Namespace, theirs.Name = "velero", "hourly-20260506080000"
	require.NoError(t, b.c.Create(t.Context(), theirs))
	s := b.newScheduler(interceptor.Funcs{})
	b.runPass(s, time.Hour)
	require.Equal(t, 1, b.told.countReason("NameTaken"))
	b.runPass(s, time.Hour)
	require.Equal(t, []string{"hourly-20260506080000", "hourly-20260506090000"}, b.backupNames())
}

// A slot was reserved, and its Backup made or not, when the schedule was told to skip or changed.
func TestASkipDropsAReservation(t *testing.T) {
	yes := true
	for name, change := range map[string]func(*velerov1.Schedule){
		"skipImmediately":    func(s *velerov1.Schedule) { s.Spec.SkipImmediately = &yes },
		"changed expression": func(s *velerov1.Schedule) { s.Spec.Schedule = "30 * * * *" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.createSchedule("hourly", "0 * * * *", nil)
			l := &line{at: 3, broken: loseWrite} // validate, reserve, create
			b.clock.Step(time.Hour)
			_, err := b.newScheduler(l.interceptFuncs()).runPass(t.Context())
			require.ErrorIs(t, err, errInjected)
			b.changeSchedule("hourly", change)
			b.runPass(b.newScheduler(interceptor.Funcs{}), time.Minute)
			require.Empty(t, b.backupNames())
			require.NotContains(t, b.getSchedule("hourly").Annotations, holdfast.AnnotationPendingSlot)
			require.Equal(t, 1, b.told.countReason("Skipped"))
		})
	}
}

// history is one schedule under random downtime, crashes, conflicts and stale reads of two
// replicas, beside a plain computation of its slots.
type history struct {
	*bed
	r         *rand.Rand
	slots     slotTimes
	lines     [2]*line
	replicas  [2]*Scheduler
	snapshots []velerov1.ScheduleList
	settled   time.Time       // of the last pass that did everything
	allowed   map[string]bool // names that may exist
	tried     int             // passes since then that may have done a part
	before    int             // Backups then
}

func newHistory(t *testing.T, seed uint64, expression string) *history {
	t.Helper()
	h := &history{bed: newBed(t), r: rand.New(rand.NewPCG(seed, 7)), allowed: map[string]bool{}, settled: start}
	h.createSchedule("s", expression, allowConcurrent)
	for i := range h.lines {
		h.lines[i] = &line{}
		h.replicas[i] = h.newScheduler(h.lines[i].interceptFuncs())
	}
	var err error
	h.slots, err = parseSlots(expression, start)
	require.NoError(t, err)
	return h
}

// lastSlot is the latest slot after the last complete pass, walked one by one.
func (h *history) lastSlot(now time.Time) string {
	name := ""
	for slot := h.slots.Next(h.settled); !slot.After(now); slot = h.slots.Next(slot) {
		name = holdfast.ScheduledBackupName("s", slot)
	}
	return name
}

// stepHistory lets time go by and one replica pass, perhaps over a bad line.
func (h *history) stepHistory(longest time.Duration) {
	h.clock.Step(time.Duration(h.r.Int64N(int64(longest)/int64(time.Second)+1)) * time.Second)
	h.rememberSlots()
	i := h.r.IntN(2)
	l, s := h.lines[i], h.replicas[i]
	l.at, l.list = 0, nil
	switch h.r.IntN(6) {
	case 0, 1:
		l.at = 1 + h.r.IntN(4)
		l.broken = []func(context.Context, func() error) error{loseWrite, loseAnswer, failConflict}[h.r.IntN(3)]
	case 2:
		old := h.snapshots[h.r.IntN(len(h.snapshots))].DeepCopy()
		l.list = func(list client.ObjectList) bool {
			schedules, ok := list.(*velerov1.ScheduleList)
			if ok {
				*schedules = *old
			}
			return ok
		}
	}
	drainWakes(s)
	_, err := s.runPass(h.t.Context())
	h.checkSlots(err == nil && !drainWakes(s) && l.list == nil)
}

func drainWakes(s *Scheduler) (woken bool) {
	select {
	case <-s.wake:
		return true
	default:
		return false
	}
}

func (h *history) rememberSlots() {
	list := velerov1.ScheduleList{}
	require.NoError(h.t, h.c.List(h.t.Context(), &list))
	h.snapshots = append(h.snapshots[max(0, len(h.snapshots)-5):], list)
}

// checkSlots compares with the slots: only slots that were the latest at some pass have a Backup, the
// latest has one after a complete pass, and when no pass in between was cut short it is the only
// new one.
func (h *history) checkSlots(complete bool) {
	h.t.Helper()
	now := h.clock.Now()
	last := h.lastSlot(now)
	if last != "" {
		h.allowed[last] = true
	}
	names := h.backupNames()
	for _, name := range names {
		require.True(h.t, h.allowed[name], "%s is no slot that was due", name)
	}
	h.tried++
	if !complete {
		return
	}
	if last != "" {
		require.Contains(h.t, names, last, "the latest slot has its backup")
	}
	if h.tried == 1 {
		require.Len(h.t, names, h.before+min(1, len(last)), "one for all that was missed")
	}
	h.settled, h.tried, h.before = now, 0, len(names)
}

func TestRandomHistories(t *testing.T) {
	for expression, longest := range map[string]time.Duration{
		"* * * * *":                               4 * time.Minute,
		"*/5 * * * *":                             20 * time.Minute,
		"CRON_TZ=Europe/Berlin 30 2 * * *":        60 * time.Hour,
		"CRON_TZ=America/New_York 0,30 1-3 * * *": 20 * time.Hour,
		"0 0 31 * *":                              40 * 24 * time.Hour,
	} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s seed %d", expression, seed), func(t *testing.T) {
				h := newHistory(t, seed, expression)
				for range 40 {
					h.stepHistory(longest)
				}
			})
		}
	}
}
