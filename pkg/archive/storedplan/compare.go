package storedplan

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// maxFirst bounds the differences in Differences.First.
const maxFirst = 20

// Differences are those of a plan and what became of it, or would become of it now. Objects with unknown effects are
// not compared, but for being there still.
type Differences struct {
	// Added are objects that the plan does not have, and Gone those that it alone has.
	Added, Gone, Changed int
	// First are the first of them.
	First []string
}

// Total is how many objects differ.
func (d *Differences) Total() int { return d.Added + d.Gone + d.Changed }

// Compare merges two sorted streams of rows. It stops at the first error of a stream and returns it.
func Compare(planned, now iter.Seq2[*Row, error]) (*Differences, error) {
	nextA, stopA := iter.Pull2(planned)
	defer stopA()
	nextB, stopB := iter.Pull2(now)
	defer stopB()
	d := &Differences{}
	a, errA, moreA := nextA()
	b, errB, moreB := nextB()
	for moreA || moreB {
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		switch {
		case !moreA || moreB && b.Key() < a.Key():
			if len(b.Unknown) == 0 {
				d.Added++
				d.addText(b, "not in the plan, now: %s", b.Action)
			}
			b, errB, moreB = nextB()
		case !moreB || a.Key() < b.Key():
			d.Gone++
			d.addText(a, "planned: %s, now: nothing", a.Action)
			a, errA, moreA = nextA()
		default:
			d.compareRow(a, b)
			a, errA, moreA = nextA()
			b, errB, moreB = nextB()
		}
	}
	return d, nil
}

// compareRow compares what would become of one object.
func (d *Differences) compareRow(planned, now *Row) {
	switch {
	case len(planned.Unknown)+len(now.Unknown) > 0:
		return
	case planned.Action != now.Action:
		d.addText(now, "planned: %s, now: %s", planned.Action, now.Action)
	case !slices.Equal(planned.Fields, now.Fields):
		d.addText(now, "%s of other fields: planned: %v, now: %v", now.Action, planned.Fields, now.Fields)
	default:
		return
	}
	d.Changed++
}

func (d *Differences) addText(r *Row, format string, args ...any) {
	if len(d.First) < maxFirst {
		d.First = append(d.First, fmt.Sprintf("%s %s/%s: ", r.Kind, r.Namespace, r.Name)+fmt.Sprintf(format, args...))
	}
}
