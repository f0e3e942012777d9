package claim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rememberedClaims bounds what a tenure remembers; a forgotten claim costs a read.
const rememberedClaims = 1024

// tenure is what an instance knows of its own liveness without asking: as long as no two renewals
// lie a timeout apart, no process can have watched it dying.
//
// After a gap that certainty is gone for every claim from before it, however often the Lease is
// renewed now: a taker may have seen the death and be about to write. For claims taken in the first
// timeout after a gap, too, as such a taker might go by an answer from before the return.
type tenure struct {
	timeout time.Duration
	begin   time.Time // of the last successful renewal; zero before it and after the end
	era     int       // counts the gaps
	settled time.Time // claims taken before this moment are not remembered
	taken   map[types.UID]taken
}

// taken is the first Take of an epoch; the epoch was written then or later.
type taken struct {
	epoch int64
	era   int // -1: never certain
}

func newTenure(timeout time.Duration) tenure {
	return tenure{timeout: timeout, taken: map[types.UID]taken{}}
}

// renewed notes a renewal begun and confirmed at the given times.
func (t *tenure) renewed(begin, end time.Time) {
	if !t.begin.IsZero() && !t.fresh(end) {
		t.era++
		t.settled = end.Add(t.timeout)
	}
	t.begin = begin
}

// fresh reports whether the Lease was renewed less than the timeout minus a margin ago: the margin
// is left to whoever asked. The wall clock has a say too, because the monotonic one may stand still
// while a machine sleeps.
func (t *tenure) fresh(now time.Time) bool {
	limit := t.timeout - t.timeout/marginsPerTimeout
	return !t.begin.IsZero() && now.Sub(t.begin) < limit && now.Round(0).Sub(t.begin.Round(0)) < limit
}

// end says that others may take over from now on.
func (t *tenure) end() {
	t.begin = time.Time{}
	t.era++
}

// took notes that a claim is about to be written. An epoch noted before keeps its note: that may be
// the one that was written.
func (t *tenure) took(uid types.UID, epoch int64, now time.Time) {
	if t.taken[uid].epoch >= epoch {
		return
	}
	if len(t.taken) >= rememberedClaims {
		clear(t.taken)
	}
	era := t.era
	if !t.fresh(now) || now.Before(t.settled) {
		era = -1
	}
	t.taken[uid] = taken{epoch: epoch, era: era}
}

// certain reports that a claim this instance wrote is still its own.
func (t *tenure) certain(uid types.UID, epoch int64, now time.Time) bool {
	return t.fresh(now) && t.taken[uid] == taken{epoch: epoch, era: t.era}
}
