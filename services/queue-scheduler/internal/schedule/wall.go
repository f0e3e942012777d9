package schedule

import (
	"time"

	"github.com/robfig/cron/v3"
)

// wallClock are slots by the clock on the wall of a zone. A time that the zone skips is due at the
// moment of the change (a daily backup at 02:30 is not missed), and of a time that it repeats the
// first one counts.
type wallClock struct {
	spec *cron.SpecSchedule // in UTC: a calendar without changes
	zone *time.Location
}

// Next implements slots.
func (w wallClock) Next(t time.Time) time.Time {
	local := t.In(w.zone)
	_, offset := local.Zone()
	reading := local.Add(time.Duration(offset) * time.Second).UTC()
	for {
		if reading = w.spec.Next(reading); reading.IsZero() {
			return time.Time{}
		}
		if slot := w.momentOf(reading); slot.After(t) {
			return slot
		}
	}
}

// momentOf is when the clock shows a reading, which is given as a time in UTC.
func (w wallClock) momentOf(reading time.Time) time.Time {
	t := time.Date(reading.Year(), reading.Month(), reading.Day(), reading.Hour(), reading.Minute(), reading.Second(), 0, w.zone)
	begin, end := t.ZoneBounds()
	_, offset := t.Zone()
	switch shown := t.Add(time.Duration(offset) * time.Second).UTC(); {
	case shown.After(reading): // skipped, and read with the offset before the change
		return begin
	case shown.Before(reading): // skipped, and read with the offset after it
		return end
	}
	if begin.IsZero() {
		return t
	}
	_, before := begin.Add(-time.Second).Zone()
	if first := reading.Add(-time.Duration(before) * time.Second); first.Before(begin) {
		return first.In(w.zone)
	}
	return t
}
