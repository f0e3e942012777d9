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
	b.create("daily", "5 7 * * *", func(s *velerov1.Schedule) { s.Labels = map[string]string{"team": "a"} })
	s := b.scheduler(interceptor.Funcs{})
	require.Equal(t, "07:05:00", b.pass(s, 0).Format(time.TimeOnly))
	require.Equal(t, velerov1.SchedulePhaseEnabled, b.get("daily").Status.Phase)
	require.Equal(t, ptr.To(false), b.get("daily").Spec.SkipImmediately, "the server's default is written into the spec")
	b.pass(s, 4*time.Minute)
	require.Empty(t, b.backups(), "not due yet")
	b.pass(s, 30*time.Second) // 07:05:00
	require.Equal(t, []string{"daily-20260506070500"}, b.backups())
	require.Equal(t, "2026-05-07T07:05:00Z", b.pass(s, time.Second).UTC().Format(time.RFC3339))
	require.Len(t, b.backups(), 1)

	now := b.get("daily")
	require.Equal(t, "2026-05-06T07:05:00Z", now.Status.LastBackup.UTC().Format(time.RFC3339))
	require.Nil(t, now.Status.LastSkipped)
	require.NotContains(t, now.Annotations, "holdfast.io/pending-slot")
	require.Equal(t, 1, b.told.made)
	require.Equal(t, 1, b.told.count("BackupCreated"))

	list := &velerov1.BackupList{}
	require.NoError(t, b.c.List(t.Context(), list))
	require.Equal(t, map[string]string{"team": "a", "velero.io/schedule-name": "daily"}, list.Items[0].Labels)
}

func TestMissedSlotsGiveOneBackupOfTheLatest(t *testing.T) {
	b := newBed(t)
	b.create("hourly", "0 * * * *", nil)
	s := b.scheduler(interceptor.Funcs{})
	b.pass(s, 0)
	b.pass(s, 50*time.Hour)
	require.Equal(t, []string{"hourly-20260508090000"}, b.backups())
	b.finish(velerov1.BackupPhaseCompleted)
	b.pass(s, 59*time.Minute)
	require.Len(t, b.backups(), 1)
	b.pass(s, time.Minute)
	require.Equal(t, []string{"hourly-20260508090000", "hourly-20260508100000"}, b.backups())
}

func TestPaused(t *testing.T) {
	b := newBed(t)
	b.create("hourly", "0 * * * *", func(s *velerov1.Schedule) { s.Spec.Paused, s.Spec.SkipImmediately = true, ptr.To(true) })
	s := b.scheduler(interceptor.Funcs{})
	require.True(t, b.pass(s, 3*time.Hour).IsZero())
	require.Empty(t, b.backups())
	require.Equal(t, velerov1.SchedulePhaseEnabled, b.get("hourly").Status.Phase)
	require.Equal(t, ptr.To(true), b.get("hourly").Spec.SkipImmediately, "kept for when it is resumed")

	b.change("hourly", func(s *velerov1.Schedule) { s.Spec.Paused = false })
	b.pass(s, 0)
	require.Empty(t, b.backups(), "what was due is skipped")
	require.Equal(t, ptr.To(false), b.get("hourly").Spec.SkipImmediately)
	require.True(t, b.get("hourly").Status.LastSkipped.Time.Equal(b.clock.Now()))
	require.Nil(t, b.get("hourly").Status.LastBackup)
	b.pass(s, time.Hour)
	require.Equal(t, []string{"hourly-20260506110000"}, b.backups())

	b.finish(velerov1.BackupPhaseCompleted)
	b.change("hourly", func(s *velerov1.Schedule) { s.Spec.Paused = true })
	b.pass(s, 5*time.Hour)
	b.change("hourly", func(s *velerov1.Schedule) { s.Spec.Paused = false })
	b.pass(s, 0)
	require.Equal(t, []string{"hourly-20260506110000", "hourly-20260506160000"}, b.backups(), "resumed without a skip: one catches up")
}

func TestTheServersDefaultSkips(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"first", "second"} {
		b.create(name, "0 * * * *", nil)
	}
	b.create("says-no", "0 * * * *", func(s *velerov1.Schedule) { s.Spec.SkipImmediately = ptr.To(false) })
	s := b.scheduler(interceptor.Funcs{})
	s.SkipImmediately = true
	b.pass(s, 2*time.Hour)
	require.Equal(t, []string{"says-no-20260506090000"}, b.backups())
	require.Equal(t, ptr.To(false), b.get("second").Spec.SkipImmediately)
	require.NotNil(t, b.get("second").Status.LastSkipped, "every schedule that does not say, not the first alone")
}

func TestASlotWaitsForTheBackupBeforeIt(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		"", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
	} {
		t.Run("phase "+string(phase), func(t *testing.T) {
			b := newBed(t)
			b.create("hourly", "0 * * * *", nil)
			b.create("other", "30 * * * *", nil)
			s := b.scheduler(interceptor.Funcs{})
			b.pass(s, time.Hour) // 08:00:30
			b.finish(phase)
			for range 3 {
				b.pass(s, time.Hour) // until 11:00:30
			}
			require.Equal(t, []string{"hourly-20260506080000", "other-20260506073000"}, b.backups())
			require.NotZero(t, b.told.count("Waiting"))
			b.finish(velerov1.BackupPhaseFinalizing)
			b.pass(s, 0)
			require.Equal(t, []string{"hourly-20260506080000", "hourly-20260506110000", "other-20260506073000", "other-20260506103000"}, b.backups())
		})
	}
}

func TestWaitingIsToldOncePerSlot(t *testing.T) {
	b := newBed(t)
	b.create("hourly", "0 * * * *", nil)
	s := b.scheduler(interceptor.Funcs{})
	b.pass(s, time.Hour)
	for range 5 {
		b.pass(s, time.Hour)
		b.pass(s, 0)
	}
	require.Equal(t, 5, b.told.count("Waiting"))
	require.NoError(t, b.c.Delete(t.Context(), b.get("hourly")))
	b.pass(s, 0)
	require.Empty(t, s.reported)
}

func TestAllowStartsBesideARunningBackup(t *testing.T) {
	b := newBed(t)
	b.create("hourly", "0 * * * *", allow)
	s := b.scheduler(interceptor.Funcs{})
	for range 3 {
		b.pass(s, time.Hour)
	}
	require.Len(t, b.backups(), 3)
}

func TestASpreadWindowShiftsTheStartAndNotTheName(t *testing.T) {
	b := newBed(t)
	spread := func(s *velerov1.Schedule) {
		s.Annotations = map[string]string{"holdfast.io/spread-window": "40m", "holdfast.io/concurrency-policy": "Allow"}
	}
	b.create("hourly", "0 * * * *", spread)
	offset, err := parseSpread("40m", "uid-hourly")
	require.NoError(t, err)
	require.Greater(t, offset, time.Minute)
	s := b.scheduler(interceptor.Funcs{})
	b.pass(s, 59*time.Minute+30*time.Second) // 08:00:00
	require.Empty(t, b.backups())
	require.Equal(t, b.clock.Now().Add(offset), b.pass(s, 0).UTC())
	b.pass(s, offset-time.Second)
	require.Empty(t, b.backups())
	b.pass(s, time.Second)
	require.Equal(t, []string{"hourly-20260506080000"}, b.backups())
	require.Equal(t, "2026-05-06T09:00:00Z", b.pass(s, 0).Add(-offset).UTC().Format(time.RFC3339))
	for range 5 {
		b.pass(s, time.Hour)
	}
	require.Equal(t, "hourly-20260506130000", b.backups()[5], "one for each slot")
	require.Len(t, b.backups(), 6)

	// A window longer than the interval shifts each slot all the same.
	b.create("often", "* * * * *", func(s *velerov1.Schedule) { spread(s); s.Annotations["holdfast.io/spread-window"] = "24h" })
	offset, err = parseSpread("24h", "uid-often")
	require.NoError(t, err)
	b.pass(s, offset)
	for range 10 {
		b.pass(s, time.Minute)
	}
	require.Len(t, ofSchedules(b.backups(), "often"), 10)
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
		"bad window":        {annotate("holdfast.io/spread-window", "soon"), `metadata.annotations[holdfast.io/spread-window]: "soon" is not a duration`},
		"negative window":   {annotate("holdfast.io/spread-window", "-1h"), "metadata.annotations[holdfast.io/spread-window]: must not be negative"},
		"bad policy":        {annotate("holdfast.io/concurrency-policy", "Replace"), `metadata.annotations[holdfast.io/concurrency-policy]: "Replace" is none of Allow and Forbid`},
		"bad pending slot":  {annotate("holdfast.io/pending-slot", "x"), "metadata.annotations[holdfast.io/pending-slot]: "},
		"a negative ttl":    {func(s *velerov1.Schedule) { s.Spec.Template.TTL.Duration = -1 }, "spec.template.ttl: must not be negative"},
		"unknown namespace": {func(s *velerov1.Schedule) { s.Spec.Template.IncludedNamespaces = []string{"a", "*"} }, "spec.template: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			var made string
			b.create("s", "0 * * * *", func(s *velerov1.Schedule) { tc.change(s); made = s.Name })
			s := b.scheduler(interceptor.Funcs{})
			b.pass(s, 2*time.Hour)
			bad := b.get(made)
			require.Equal(t, velerov1.SchedulePhaseFailedValidation, bad.Status.Phase)
			require.Len(t, bad.Status.ValidationErrors, 1)
			require.Contains(t, bad.Status.ValidationErrors[0], tc.want)
			require.Empty(t, b.backups())
			b.pass(s, time.Hour)
			require.Equal(t, bad.ResourceVersion, b.get(made).ResourceVersion, "written once")
			require.Equal(t, 1, b.told.count("FailedValidation"))
			if made != "s" {
				return
			}
			b.change("s", func(s *velerov1.Schedule) {
				s.Annotations, s.Spec = nil, velerov1.ScheduleSpec{Schedule: "0 * * * *"}
			})
			b.pass(s, 0)
			require.Equal(t, velerov1.SchedulePhaseEnabled, b.get("s").Status.Phase)
			require.Empty(t, b.get("s").Status.ValidationErrors)
			require.Len(t, b.backups(), 1, "corrected, it catches up")
		})
	}
}

func annotate(key, value string) func(*velerov1.Schedule) {
	return func(s *velerov1.Schedule) { s.Annotations = map[string]string{key: value} }
}

func TestSchedulesOfOtherNamespacesAndDyingOnesAreLeftAlone(t *testing.T) {
	b := newBed(t)
	b.create("elsewhere", "0 * * * *", func(s *velerov1.Schedule) { s.Namespace = "other" })
	b.create("dying", "0 * * * *", func(s *velerov1.Schedule) { s.Finalizers = []string{"example.com/keep"} })
	require.NoError(t, b.c.Delete(t.Context(), b.get("dying")))
	b.pass(b.scheduler(interceptor.Funcs{}), 2*time.Hour)
	require.Empty(t, b.backups())
}
