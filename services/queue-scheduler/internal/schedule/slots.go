package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // an image without zone files must not change what a Schedule means

	"github.com/robfig/cron/v3"
)

// slotTimes are the times at which a Schedule is due, in whole seconds.
type slotTimes interface {
	// Next returns the first slot after t, or the zero time when there is none within five years.
	Next(t time.Time) time.Time
}

// shortestInterval is the granularity of slots and of the names of Backups.
const shortestInterval = time.Second

const everyPrefix = "@every "

// parseSlots reads five fields or a descriptor, with CRON_TZ= or TZ= before it if it is not meant
// in UTC. (Velero reads it in its process's local time, which is UTC in its image; replicas must
// not differ here.)
func parseSlots(expression string, now time.Time) (s slotTimes, err error) {
	defer func() {
		if p := recover(); p != nil { // the library indexes past the end of "TZ=UTC" without fields
			s, err = nil, fmt.Errorf("cannot be read: %v", p)
		}
	}()
	parsed, err := cron.ParseStandard(expression)
	if err != nil {
		return nil, err
	}
	switch p := parsed.(type) {
	case cron.ConstantDelaySchedule:
		return p, checkInterval(expression)
	case *cron.SpecSchedule:
		s = followWallClock(p)
	default:
		return nil, fmt.Errorf("unknown kind of schedule %T", parsed)
	}
	if s.Next(now).IsZero() {
		return nil, errors.New("no time within five years matches")
	}
	return s, nil
}

// checkInterval refuses what the library would silently round up.
func checkInterval(expression string) error {
	_, text, _ := strings.Cut(expression, everyPrefix)
	if d, err := time.ParseDuration(text); err != nil || d < shortestInterval {
		return fmt.Errorf("%q is less than %s", text, shortestInterval)
	}
	return nil
}

// allHours are the bits of the hours 0 to 23.
const allHours = 1<<24 - 1

// followWallClock gives fixed hours the meaning people expect of them when clocks change. What runs in every
// hour is not about the clock on the wall: each hour that passes counts, the repeated one too.
func followWallClock(spec *cron.SpecSchedule) slotTimes {
	if spec.Location == time.Local { // the library's word for "none given"
		spec.Location = time.UTC
	}
	if spec.Hour&allHours == allHours || spec.Location == time.UTC {
		return spec
	}
	zone := spec.Location
	spec.Location = time.UTC
	return wallClock{spec: spec, zone: zone}
}

// latestSlot returns the last slot after base and not after limit.
func latestSlot(s slotTimes, base, limit time.Time) (time.Time, bool) {
	found := s.Next(base)
	if found.IsZero() || found.After(limit) {
		return time.Time{}, false
	}
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return found.Add(limit.Sub(found).Truncate(every.Delay)), true
	}
	// Long after the base, search from the end: by minutes it may be far.
	for back := time.Minute; limit.Add(-back).After(found); back *= 2 {
		if t := s.Next(limit.Add(-back)); !t.IsZero() && !t.After(limit) {
			found = t
			break
		}
	}
	for {
		t := s.Next(found)
		if t.IsZero() || t.After(limit) {
			return found, true
		}
		found = t
	}
}
