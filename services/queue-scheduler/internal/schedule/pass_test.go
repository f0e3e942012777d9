package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

func TestASlotMakesOneBackup(t *testing.T) {
	b := newBed(t)
	b.createSchedule("daily", "5 7 * * *", func(s *velerov1.Schedule) { s.Labels = map[string]string{"team": "a"} })
	s := b.newScheduler(interceptor.Funcs{})
	require.Equal(t, "07:05:00", b.runPass(s, 0).Format(time.TimeOnly))
	require.Equal(t, velerov1.SchedulePhaseEnabled, b.getSchedule("daily").Status.Phase)
	require.Equal(t, ptr.To(false), b.getSchedule("daily").Spec.SkipImmediately, "the server's default is written into the spec")
	b.runPass(s, 4*time.Minute)
	require.Empty(t, b.backupNames(), "not due yet")
	b.runPass(s, 30*time.Second) // 07:05:00
	require.Equal(t, []string{"daily-20260506070500"}, b.backupNames())
	require.Equal(t, "2026-05-07T07:05:00Z", b.runPass(s, time.Second).UTC().Format(time.RFC3339))
	require.Len(t, b.backupNames(), 1)

	now := b.getSchedule("daily")
	require.Equal(t, "2026-05-06T07:05:00Z", now.Status.LastBackup.UTC().Format(time.RFC3339))
	require.Nil(t, now.Status.LastSkipped)
	require.NotContains(t, now.Annotations, "holdfast.io/pending-slot")
	require.Equal(t, 1, b.told.made)
	require.Equal(t, 1, b.told.countReason("BackupCreated"))

	list := &velerov1.BackupList{}
	require.NoError(t, b.c.List(t.Context(), list))
	require.Equal(t, map[string]string{"team": "a", "velero.io/schedule-name": "daily"}, list.Items[0].Labels)
}

func TestMissedSlotsGiveOneBackupOfTheLatest(t *testing.T) {
	b := newBed(t)
	b.createSchedule("hourly", "0 * * * *", nil)
	s := b.newScheduler(interceptor.Funcs{})
	b.runPass(s, 0)
	b.runPass(s, 50*time.Hour)
	require.Equal(t, []string{"hourly-20260508090000"}, b.backupNames())
	b.finishBackups(velerov1.BackupPhaseCompleted)
	b.runPass(s, 59*time.Minute)
	require.Len(t, b.backupNames(), 1)
	b.runPass(s, time.Minute)
	require.Equal(t, []string{"hourly-20260508090000", "hourly-20260508100000"}, b.backupNames())
}

func TestPaused(t *testing.T) {
	b := newBed(t)
	b.createSchedule("hourly", "0 * * * *", func(s *velerov1.Schedule) { s.Spec.Paused, s.Spec.SkipImmediately = true, ptr.To(true) })
	s := b.newScheduler(interceptor.Funcs{})
	require.True(t, b.runPass(s, 3*time.Hour).IsZero())
	require.Empty(t, b.backupNames())
	require.Equal(t, velerov1.SchedulePhaseEnabled, b.getSchedule("hourly").Status.Phase)
	require.Equal(t, ptr.To(true), b.getSchedule("hourly").Spec.SkipImmediately, "kept for when it is resumed")

	b.changeSchedule("hourly", func(s *velerov1.Schedule) { s.Spec.Paused = false })
	b.runPass(s, 0)
	require.Empty(t, b.backupNames(), "what was due is skipped")
	require.Equal(t, ptr.To(false), b.getSchedule("hourly").Spec.SkipImmediately)
	require.True(t, b.getSchedule("hourly").Status.LastSkipped.Time.Equal(b.clock.Now()))
	require.Nil(t, b.getSchedule("hourly").Status.LastBackup)
	b.runPass(s, time.Hour)
	require.Equal(t, []string{"hourly-20260506110000"}, b.backupNames())

	b.finishBackups(velerov1.BackupPhaseCompleted)
	b.changeSchedule("hourly", func(s *velerov1.Schedule) { s.Spec.Paused = true })
	b.runPass(s, 5*time.Hour)
	b.changeSchedule("hourly", func(s *velerov1.Schedule) { s.Spec.Paused = false })
	b.runPass(s, 0)
	require.Equal(t, []string{"hourly-20260506110000"}, b.backupNames(), "what passed while it was paused is not made up for")
	require.True(t, b.getSchedule("hourly").Status.LastSkipped.Time.Equal(b.clock.Now()))
	require.Equal(t, 2, b.told.countReason("Skipped"))
	b.runPass(s, time.Hour)
	require.Equal(t, []string{"hourly-20260506110000", "hourly-20260506170000"}, b.backupNames())
}

// What passed before a change of the expression is not made up for, what passed without one is.
func TestSlotsBeforeAChangeAreSkipped(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*velerov1.Schedule)
		names   []string
		skipped bool
	}{
		"an earlier hour":        {func(s *velerov1.Schedule) { s.Spec.Schedule = "0 9 * * *" }, nil, true},
		"shorter intervals":      {func(s *velerov1.Schedule) { s.Spec.Schedule = "@every 10m" }, nil, true},
		"a later hour":           {func(s *velerov1.Schedule) { s.Spec.Schedule = "0 22 * * *" }, nil, false},
		"another zone":           {func(s *velerov1.Schedule) { s.Spec.Schedule = "CRON_TZ=Asia/Tokyo 0 20 * * *" }, nil, true},
		"spaces around it":       {func(s *velerov1.Schedule) { s.Spec.Schedule = " 0 12 * * * " }, []string{"s-20260506120000"}, false},
		"another template":       {func(s *velerov1.Schedule) { s.Spec.Template.IncludedNamespaces = []string{"shop"} }, []string{"s-20260506120000"}, false},
		"paused and resumed":     {func(s *velerov1.Schedule) { s.Annotations["holdfast.io/active-schedule"] = "" }, nil, true},
		"of an earlier version":  {func(s *velerov1.Schedule) { s.Annotations = nil }, []string{"s-20260506120000"}, false},
		"that asks to catch up":  {changeAndCatchUp("true"), []string{"s-20260506090000"}, false},
		"that asks to leave out": {changeAndCatchUp("false"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.createSchedule("s", "0 12 * * *", nil)
			s := b.newScheduler(interceptor.Funcs{})
			b.runPass(s, 0)
			b.clock.Step(6 * time.Hour) // until 13:00:30, without a pass
			b.changeSchedule("s", tc.change)
			b.runPass(s, 0)
			require.Equal(t, tc.names, b.backupNames())
			require.Equal(t, tc.skipped, b.getSchedule("s").Status.LastSkipped != nil)
			require.Equal(t, tc.skipped, b.told.countReason("Skipped") == 1)
			b.runPass(s, 0)
			require.Equal(t, tc.names, b.backupNames())
		})
	}
}

func changeAndCatchUp(value string) func(*velerov1.Schedule) {
	return func(s *velerov1.Schedule) {
		s.Spec.Schedule, s.Annotations["holdfast.io/catch-up"] = "0 9 * * *", value
	}
}

func TestTheServersDefaultSkips(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"first", "second"} {
		b.createSchedule(name, "0 * * * *", nil)
	}
	b.createSchedule("says-no", "0 * * * *", func(s *velerov1.Schedule) { s.Spec.SkipImmediately = ptr.To(false) })
	s := b.newScheduler(interceptor.Funcs{})
	s.SkipImmediately = true
	b.runPass(s, 2*time.Hour)
	require.Equal(t, []string{"says-no-20260506090000"}, b.backupNames())
	require.Equal(t, ptr.To(false), b.getSchedule("second").Spec.SkipImmediately)
	require.NotNil(t, b.getSchedule("second").Status.LastSkipped, "every schedule that does not say, not the first alone")
}

func TestASlotWaitsForTheBackupBeforeIt(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
	} {
		t.Run("phase "+string(phase), func(t *testing.T) {
			b := newBed(t)
			b.createSchedule("hourly", "0 * * * *", nil)
			b.createSchedule("other", "30 * * * *", nil)
			s := b.newScheduler(interceptor.Funcs{})
			b.runPass(s, time.Hour) // 08:00:30
			b.finishBackups(phase)
			for range 3 {
				b.runPass(s, time.Hour) // until 11:00:30
			}
			require.Equal(t, []string{"hourly-20260506080000", "other-20260506073000"}, b.backupNames())
			require.NotZero(t, b.told.countReason("Waiting"))
			b.finishBackups(velerov1.BackupPhaseFinalizing)
			b.runPass(s, 0)
			require.Equal(t, []string{"hourly-20260506080000", "hourly-20260506110000", "other-20260506073000", "other-20260506103000"}, b.backupNames())
		})
	}
}

func TestWaitingIsToldOncePerSlot(t *testing.T) {
	b := newBed(t)
	b.createSchedule("hourly", "0 * * * *", nil)
	s := b.newScheduler(interceptor.Funcs{})
	b.runPass(s, time.Hour)
	for range 5 {
		b.runPass(s, time.Hour)
		b.runPass(s, 0)
	}
	require.Equal(t, 5, b.told.countReason("Waiting"))
	require.NoError(t, b.c.Delete(t.Context(), b.getSchedule("hourly")))
	b.runPass(s, 0)
	require.Empty(t, s.reported)
}

func TestASpreadWindowShiftsTheStartAndNotTheName(t *testing.T) {
	b := newBed(t)
	spread := func(s *velerov1.Schedule) {
		s.Annotations = map[string]string{"holdfast.io/spread-window": "40m", "holdfast.io/concurrency-policy": "Allow"}
	}
	b.createSchedule("hourly", "0 * * * *", spread)
	offset, err := parseSpread("40m", "uid-hourly")
	require.NoError(t, err)
	require.Greater(t, offset, time.Minute)
	s := b.newScheduler(interceptor.Funcs{})
	b.runPass(s, 59*time.Minute+30*time.Second) // 08:00:00
	require.Empty(t, b.backupNames())
	require.Equal(t, b.clock.Now().Add(offset), b.runPass(s, 0).UTC())
	b.runPass(s, offset-time.Second)
	require.Empty(t, b.backupNames())
	b.runPass(s, time.Second)
	require.Equal(t, []string{"hourly-20260506080000"}, b.backupNames())
	require.Equal(t, "2026-05-06T09:00:00Z", b.runPass(s, 0).Add(-offset).UTC().Format(time.RFC3339))
	for range 5 {
		b.runPass(s, time.Hour)
	}
	require.Equal(t, "hourly-20260506130000", b.backupNames()[5], "one for each slot")
	require.Len(t, b.backupNames(), 6)

	// A window longer than the interval shifts each slot all the same.
	b.createSchedule("often", "* * * * *", func(s *velerov1.Schedule) { spread(s); s.Annotations["holdfast.io/spread-window"] = "24h" })
	offset, err = parseSpread("24h", "uid-often")
	require.NoError(t, err)
	b.runPass(s, offset)
	for range 10 {
		b.runPass(s, time.Minute)
	}
	require.Len(t, ofSchedules(b.backupNames(), "often"), 10)
}

func ofSchedules(names []string, schedule string) []string {
	var out []string
	for _, name := range names {
		if strings.HasPrefix(name, schedule+"-") {
			out = append(out, name)
		}
	}
	return out
}

func TestSpreadIsStableAndWide(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 100 {
		uid := types.UID(fmt.Sprintf("6f1c3a52-0000-4000-8000-%012d", i))
		offset, err := parseSpread("1h", uid)
		require.NoError(t, err)
		require.Less(t, offset, time.Hour)
		again, err := parseSpread("1h", uid)
		require.NoError(t, err)
		require.Equal(t, offset, again)
		seen[offset.Truncate(10*time.Minute)] = true
	}
	require.Len(t, seen, 6, "every part of the window is used")
	for text, want := range map[string]time.Duration{"": 0, "0s": 0, "900ms": 0} {
		offset, err := parseSpread(text, "u")
		require.NoError(t, err)
		require.Equal(t, want, offset)
	}
}

func TestValidation(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*velerov1.Schedule)
		want   string
	}{
		"no schedule":       {func(s *velerov1.Schedule) { s.Spec.Schedule = " " }, "Schedule must be a non-empty valid Cron expression"},
		"bad schedule":      {func(s *velerov1.Schedule) { s.Spec.Schedule = "whenever" }, "invalid schedule: "},
		"never":             {func(s *velerov1.Schedule) { s.Spec.Schedule = "0 0 31 6 *" }, "invalid schedule: no time within five years matches"},
		"a long name":       {func(s *velerov1.Schedule) { s.Name = strings.Repeat("n", 64) }, "metadata.name: must have at most 63 characters"},
		"bad window":        {withAnnotation("holdfast.io/spread-window", "soon"), `metadata.annotations[holdfast.io/spread-window]: "soon" is not a duration`},
		"negative window":   {withAnnotation("holdfast.io/spread-window", "-1h"), "metadata.annotations[holdfast.io/spread-window]: must not be negative"},
		"bad policy":        {withAnnotation("holdfast.io/concurrency-policy", "Replace"), `metadata.annotations[holdfast.io/concurrency-policy]: "Replace" is none of Allow and Forbid`},
		"bad catch-up":      {withAnnotation("holdfast.io/catch-up", "once"), "metadata.annotations[holdfast.io/catch-up]: "},
		"bad pending slot":  {withAnnotation("holdfast.io/pending-slot", "x"), "metadata.annotations[holdfast.io/pending-slot]: "},
		"a negative ttl":    {func(s *velerov1.Schedule) { s.Spec.Template.TTL.Duration = -1 }, "spec.template.ttl: must not be negative"},
		"unknown namespace": {func(s *velerov1.Schedule) { s.Spec.Template.IncludedNamespaces = []string{"a", "*"} }, "spec.template: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			var made string
			b.createSchedule("s", "0 * * * *", func(s *velerov1.Schedule) { tc.change(s); made = s.Name })
			s := b.newScheduler(interceptor.Funcs{})
			b.runPass(s, 2*time.Hour)
			bad := b.getSchedule(made)
			require.Equal(t, velerov1.SchedulePhaseFailedValidation, bad.Status.Phase)
			require.Len(t, bad.Status.ValidationErrors, 1)
			require.Contains(t, bad.Status.ValidationErrors[0], tc.want)
			require.Empty(t, b.backupNames())
			b.runPass(s, time.Hour)
			require.Equal(t, bad.ResourceVersion, b.getSchedule(made).ResourceVersion, "written once")
			require.Equal(t, 1, b.told.countReason("FailedValidation"))
			if made != "s" {
				return
			}
			b.changeSchedule("s", func(s *velerov1.Schedule) {
				s.Annotations, s.Spec = nil, velerov1.ScheduleSpec{Schedule: "0 * * * *"}
			})
			b.runPass(s, 0)
			require.Equal(t, velerov1.SchedulePhaseEnabled, b.getSchedule("s").Status.Phase)
			require.Empty(t, b.getSchedule("s").Status.ValidationErrors)
			require.Empty(t, b.backupNames(), "what passed while it was invalid is not made up for")
			require.True(t, b.getSchedule("s").Status.LastSkipped.Time.Equal(b.clock.Now()))
			b.runPass(s, time.Hour)
			require.Len(t, b.backupNames(), 1)
		})
	}
}

func withAnnotation(key, value string) func(*velerov1.Schedule) {
	return func(s *velerov1.Schedule) { s.Annotations = map[string]string{key: value} }
}

func TestSchedulesOfOtherNamespacesAndDyingOnesAreLeftAlone(t *testing.T) {
	b := newBed(t)
	b.createSchedule("elsewhere", "0 * * * *", func(s *velerov1.Schedule) { s.Namespace = "other" })
	b.createSchedule("dying", "0 * * * *", func(s *velerov1.Schedule) { s.Finalizers = []string{"example.com/keep"} })
	require.NoError(t, b.c.Delete(t.Context(), b.getSchedule("dying")))
	b.runPass(b.newScheduler(interceptor.Funcs{}), 2*time.Hour)
	require.Empty(t, b.backupNames())
}
