package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestIntervalIsTheLongestTimeBetweenSlots(t *testing.T) {
	now := time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC) // a Wednesday
	for expression, want := range map[string]time.Duration{
		"@every 90s":                      90 * time.Second,
		"* * * * *":                       time.Minute,
		"@hourly":                         time.Hour,
		" 0 3 * * * ":                     24 * time.Hour,
		"0 3 * * 1-5":                     3 * 24 * time.Hour,
		"*/5 9-17 * * *":                  15*time.Hour + 5*time.Minute,
		"0 0 * * 0":                       7 * 24 * time.Hour,
		"0 0 1 * *":                       31 * 24 * time.Hour,
		"CRON_TZ=Europe/Berlin 0 3 * * *": 24 * time.Hour,
		"nonsense":                        0,
		"":                                0,
		"0 0 30 2 *":                      0,
	} {
		require.Equal(t, want, Interval(expression, now), expression)
	}
}
