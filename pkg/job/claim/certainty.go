package claim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rememberedClaims bounds the claims that are kept; one that was dropped costs a read.
const rememberedClaims = 1024

// certainty decides without a call whether a claim of this instance still holds: as long as no two
// renewals of its Lease lie a timeout apart, no other process can have found the Lease expired.
//
// After a gap no claim from before it is certain, however often the Lease is renewed now: another
// process may have found it expired and be about to write. Nor is a claim that is acquired in the
// first timeout after a gap: such a process may decide by an answer from before the renewal.
type certainty struct {
	timeout        time.Duration
	begin          time.Time // of the last successful renewal; zero before it and after the end
	interval       int       // counts the gaps
	uncertainUntil time.Time // claims acquired before this moment are never certain
	acquired       map[types.UID]acquisition
}

// acquisition is the first Acquire of an epoch; the epoch was written then or later.
type acquisition struct {
	epoch    int64
	interval int // -1: never certain
}

func newCertainty(timeout time.Duration) certainty {
	return certainty{timeout: timeout, acquired: map[types.UID]acquisition{}}
}

// renewed notes a renewal begun and confirmed at the given times.
func (t *certainty) renewed(begin, end time.Time) {
	if !t.begin.IsZero() && !t.fresh(end) {
		t.interval++
		t.uncertainUntil = end.Add(t.timeout)
	}
	t.begin = begin
}

// fresh reports whether the Lease was renewed less than the timeout minus a margin ago: the margin
// is left to the caller. The wall clock is compared as well, because the monotonic one may stop
// while a machine is suspended.
func (t *certainty) fresh(now time.Time) bool {
	limit := t.timeout - t.timeout/marginsPerTimeout
	return !t.begin.IsZero() && now.Sub(t.begin) < limit && now.Round(0).Sub(t.begin.Round(0)) < limit
}

// end notes that other instances may take over from now on.
func (t *certainty) end() {
	t.begin = time.Time{}
	t.interval++
}

// acquiring notes that a claim is about to be written. An epoch noted before keeps its note: that
// may be the one that was written.
func (t *certainty) acquiring(uid types.UID, epoch int64, now time.Time) {
	if t.acquired[uid].epoch >= epoch {
		return
	}
	if len(t.acquired) >= rememberedClaims {
		clear(t.acquired)
	}
	interval := t.interval
	if !t.fresh(now) || now.Before(t.uncertainUntil) {
		interval = -1
	}
	t.acquired[uid] = acquisition{epoch: epoch, interval: interval}
}

// certain reports that a claim this instance wrote is still its own.
func (t *certainty) certain(uid types.UID, epoch int64, now time.Time) bool {
	return t.fresh(now) && t.acquired[uid] == acquisition{epoch: epoch, interval: t.interval}
}
