package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func parseTime(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return v
}

// followingSlots lists the n slots after a time, in UTC.
func followingSlots(t *testing.T, expression, after string, n int) []string {
	t.Helper()
	now := parseTime(t, after)
	s, err := parseSlots(expression, now)
	require.NoError(t, err)
	var out []string
	for range n {
		now = s.Next(now)
		out = append(out, now.UTC().Format("2006-01-02T15:04"))
	}
	return out
}

func TestSlots(t *testing.T) {
	for name, tc := range map[string]struct {
		expression, after string
		want              []string
	}{
		"UTC unless told otherwise": {"30 2 * * *", "2026-07-01T00:00:00Z", []string{"2026-07-01T02:30", "2026-07-02T02:30"}},
		"CRON_TZ":                   {"CRON_TZ=Asia/Kolkata 0 9 * * *", "2026-07-01T00:00:00Z", []string{"2026-07-01T03:30", "2026-07-02T03:30"}},
		"TZ":                        {"TZ=America/New_York @daily", "2026-07-01T00:00:00Z", []string{"2026-07-01T04:00", "2026-07-02T04:00"}},
		"@every counts from before": {"@every 90m", "2026-07-01T00:10:00Z", []string{"2026-07-01T01:40", "2026-07-01T03:10"}},
		"the 31st":                  {"0 0 31 * *", "2026-01-31T00:00:00Z", []string{"2026-03-31T00:00", "2026-05-31T00:00", "2026-07-31T00:00", "2026-08-31T00:00"}},
		"February 29th":             {"0 12 29 2 *", "2026-01-01T00:00:00Z", []string{"2028-02-29T12:00", "2032-02-29T12:00"}},
		"month ends in a zone":      {"CRON_TZ=Europe/Berlin 0 0 1 * *", "2026-02-01T12:00:00Z", []string{"2026-02-28T23:00", "2026-03-31T22:00", "2026-04-30T22:00"}},

		// Europe/Berlin: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00.
		"Berlin skips 02:30: due at the change":  {"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T00:00:00Z", []string{"2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"}},
		"Berlin skips two slots: one is due":     {"CRON_TZ=Europe/Berlin 0,30 2 * * *", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00", "2026-03-30T00:00"}},
		"Berlin skips onto another slot":         {"CRON_TZ=Europe/Berlin 0 2,3 * * *", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00", "2026-03-30T00:00", "2026-03-30T01:00"}},
		"Berlin repeats 02:30: the first counts": {"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30", "2026-10-26T01:30"}},
		"Berlin after the first 02:30":           {"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T01:10:00Z", []string{"2026-10-26T01:30"}},
		"Berlin, every hour, forward":            {"CRON_TZ=Europe/Berlin 30 * * * *", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"}},
		"Berlin, every hour, backward":           {"CRON_TZ=Europe/Berlin 30 * * * *", "2026-10-25T00:00:00Z", []string{"2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"}},
		"Berlin, every hour by numbers":          {"CRON_TZ=Europe/Berlin 0 0-23 * * *", "2026-10-24T23:30:00Z", []string{"2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00"}},

		// America/New_York: 2026-03-08 02:00 becomes 03:00, 2026-11-01 02:00 becomes 01:00.
		"New York skips 02:15":                {"CRON_TZ=America/New_York 15 2 * * *", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:00", "2026-03-09T06:15"}},
		"New York repeats 01:30":              {"CRON_TZ=America/New_York 30 1 * * *", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30", "2026-11-02T06:30"}},
		"New York skips 02:15 on a weekday":   {"CRON_TZ=America/New_York 15 2 * * 0", "2026-03-01T12:00:00Z", []string{"2026-03-08T07:00", "2026-03-15T06:15"}},
		"a midnight that does not exist":      {"CRON_TZ=Africa/Cairo 0 0 * * *", "2026-04-22T12:00:00Z", []string{"2026-04-22T22:00", "2026-04-23T22:00", "2026-04-24T21:00"}},
		"a change by half an hour, forward":   {"CRON_TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-02T20:00:00Z", []string{"2026-10-03T15:30", "2026-10-04T15:15"}},
		"a change by half an hour, backward":  {"CRON_TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45", "2026-04-05T15:15"}},
		"a zone that skipped a whole day":     {"CRON_TZ=Pacific/Apia 0 6 * * *", "2011-12-29T00:00:00Z", []string{"2011-12-29T16:00", "2011-12-30T10:00", "2011-12-30T16:00"}},
		"a time zone without rules ever":      {"CRON_TZ=Etc/GMT-5 0 6 * * *", "2026-01-01T00:00:00Z", []string{"2026-01-01T01:00"}},
		"years before any change of the zone": {"CRON_TZ=Europe/Berlin 0 6 * * *", "1850-01-01T12:00:00Z", []string{"1850-01-02T05:06"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, followingSlots(t, tc.expression, tc.after, len(tc.want)))
		})
	}
}

func TestSlotsThatCannotBeRead(t *testing.T) {
	for expression, want := range map[string]string{
		"nonsense":                    "expected exactly 5 fields",
		"* * * * * *":                 "expected exactly 5 fields",
		"61 * * * *":                  "above maximum",
		"TZ=UTC":                      "cannot be read",
		"CRON_TZ=Mars/Base 0 0 * * *": "bad location",
		"@sometimes":                  "unrecognized descriptor",
		"@every soon":                 "failed to parse duration",
		"@every 0s":                   `"0s" is less than 1s`,
		"@every -5m":                  `"-5m" is less than 1s`,
		"@every 100ms":                `"100ms" is less than 1s`,
		"0 0 30 2 *":                  "no time within five years",
	} {
		_, err := parseSlots(expression, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		require.ErrorContains(t, err, want, expression)
	}
}

// Whatever the zone does, fixed hours are due once a day and every slot lies after the one before.
func TestEveryDayHasOneSlot(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Tehran"} {
		for _, fields := range []string{"0 0", "30 1", "15 2", "0 3", "59 23"} {
			now := parseTime(t, "2015-01-01T12:00:00Z")
			s, err := parseSlots("CRON_TZ="+zone+" "+fields+" * * *", now)
			require.NoError(t, err)
			location, err := time.LoadLocation(zone)
			require.NoError(t, err)
			days := map[string]bool{}
			for range 1500 {
				next := s.Next(now)
				require.True(t, next.After(now), "%s %s: %s then %s", zone, fields, now, next)
				require.Less(t, next.Sub(now), 26*time.Hour, "%s %s", zone, fields)
				day := next.In(location).Format(time.DateOnly)
				require.False(t, days[day], "%s %s twice on %s", zone, fields, day)
				days[day], now = true, next
			}
		}
	}
}

// The shortcut finds what walking slot by slot finds.
func TestLatest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, expression := range []string{"* * * * *", "*/7 3 * * *", "0 0 31 * *", "@every 11s", "CRON_TZ=Europe/Berlin 30 2 * * *", "CRON_TZ=America/New_York 5 * * * *", "* * * 1 *"} {
		s, err := parseSlots(expression, parseTime(t, "2026-01-01T00:00:00Z"))
		require.NoError(t, err)
		for range 200 {
			base := parseTime(t, "2026-01-01T00:00:00Z").Add(time.Duration(r.IntN(300*86400)) * time.Second)
			limit := base.Add(time.Duration(r.IntN(1<<r.IntN(20))) * time.Second)
			var want time.Time
			for slot := s.Next(base); !slot.After(limit); slot = s.Next(slot) {
				want = slot
			}
			got, found := latestSlot(s, base, limit)
			require.Equal(t, !want.IsZero(), found, "%s from %s to %s", expression, base, limit)
			require.True(t, want.Equal(got), "%s from %s to %s: %s instead of %s", expression, base, limit, got, want)
		}
	}
}

func FuzzParseSlots(f *testing.F) {
	for _, seed := range []string{"0 1 * * *", "@every 5m", "TZ=UTC", "CRON_TZ=Europe/Berlin 30 2 * * *", "*/5 1-3,7 29 2 ?", "@daily", "TZ= "} {
		f.Add(seed)
	}
	now := time.Date(2026, 10, 24, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expression string) {
		s, err := parseSlots(expression, now)
		if err != nil {
			return
		}
		first := s.Next(now)
		second := s.Next(first)
		if !first.After(now) || !second.IsZero() && !second.After(first) {
			t.Fatalf("%q: %s, %s, %s", expression, now, first, second)
		}
	})
}
