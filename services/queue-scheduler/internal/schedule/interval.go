package schedule

import (
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// week is for how long slots are looked at: within it those of each hour and weekday repeat.
	week = 7 * 24 * time.Hour
	// minSlots is how many slots are looked at, beyond a week too: those of a month differ.
	minSlots = 13
	// maxSlots bounds the work for slots that are close to each other.
	maxSlots = 7 * 24 * 60
)

// Interval is the longest time between two slots that follow each other, among those of the week
// after now, and the next 13 at least; 0 if the expression cannot be read.
func Interval(expression string, now time.Time) time.Duration {
	s, err := parseSlots(strings.TrimSpace(expression), now)
	if err != nil {
		return 0
	}
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return every.Delay
	}
	longest := time.Duration(0)
	slot := s.Next(now)
	for n := 1; n < maxSlots && (n <= minSlots || slot.Before(now.Add(week))); n++ {
		next := s.Next(slot)
		if next.IsZero() {
			break
		}
		longest, slot = max(longest, next.Sub(slot)), next
	}
	return longest
}
