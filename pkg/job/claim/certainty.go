package claim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rememberedClaims bounds the claims that are kept; one that was dropped costs a read.
const rememberedClaims = 1024

// leaseCertainty decides without a call whether a claim of this instance still holds: as long as each
// write of its Lease is followed by the next within the duration that it declares, no other process
// can have found the Lease expired.
//
// After a gap no claim from before it is certain, however often the Lease is renewed now: another
// process may have found it expired and be about to write. Nor is a claim that is acquired in the
// first timeout after a gap: such a process may decide by an answer from before the renewal.
type leaseCertainty struct {
	timeout        time.Duration
	confirmed      leaseDeclaration // the last write that is known to have succeeded; zero before it and after the end
	attempted      leaseDeclaration // the first shorter one since then, which may have succeeded
	interval       int              // counts the gaps
	uncertainUntil time.Time        // claims acquired before this moment are never certain
	acquired       map[types.UID]acquisition
}

// acquisition is the first Acquire of an epoch; the epoch was written then or later.
type acquisition struct {
	epoch    int64
	interval int // -1: never certain
}

// leaseDeclaration is a write of the Lease: for how long others wait that see it and no later one.
type leaseDeclaration struct {
	begin    time.Time
	duration time.Duration
}

// isFresh reports whether the write began less than its duration minus a margin ago: the margin is
// left to the caller. The wall clock is compared as well, because the monotonic one may stop while a
// machine is suspended.
func (d leaseDeclaration) isFresh(now time.Time) bool {
	limit := d.duration - d.duration/marginsPerTimeout
	return !d.begin.IsZero() && now.Sub(d.begin) < limit && now.Round(0).Sub(d.begin.Round(0)) < limit
}

func newCertainty(timeout time.Duration) leaseCertainty {
	return leaseCertainty{timeout: timeout, acquired: map[types.UID]acquisition{}}
}

// noteRenewing notes a write that is about to be sent: others may see it although no answer comes. One
// that declares no less than the one before leaves them more time, and the first shorter one less
// than any that follows it.
func (t *leaseCertainty) noteRenewing(d leaseDeclaration) {
	if t.attempted.begin.IsZero() && d.duration < t.confirmed.duration {
		t.attempted = d
	}
}

// noteRenewed notes that a write succeeded, with the time of the answer. No earlier one can succeed
// after it.
func (t *leaseCertainty) noteRenewed(d leaseDeclaration, end time.Time) {
	if !t.confirmed.begin.IsZero() && !t.isFresh(end) {
		t.interval++
		t.uncertainUntil = end.Add(t.timeout)
	}
	t.confirmed, t.attempted = d, leaseDeclaration{}
}

// hasDeclared reports whether the Lease certainly declares a duration.
func (t *leaseCertainty) hasDeclared(duration time.Duration) bool {
	return t.confirmed.duration == duration && t.attempted.begin.IsZero()
}

// isFresh reports whether no other process can have found the Lease expired since the last write.
func (t *leaseCertainty) isFresh(now time.Time) bool {
	return t.confirmed.isFresh(now) && (t.attempted.begin.IsZero() || t.attempted.isFresh(now))
}

// endCertainty notes that other instances may take over from now on.
func (t *leaseCertainty) endCertainty() {
	t.confirmed, t.attempted = leaseDeclaration{}, leaseDeclaration{}
	t.interval++
}

// noteAcquiring notes that a claim is about to be written. An epoch noted before keeps its note: that
// may be the one that was written.
func (t *leaseCertainty) noteAcquiring(uid types.UID, epoch int64, now time.Time) {
	if t.acquired[uid].epoch >= epoch {
		return
	}
	if len(t.acquired) >= rememberedClaims {
		clear(t.acquired)
	}
	interval := t.interval
	if !t.isFresh(now) || now.Before(t.uncertainUntil) {
		interval = -1
	}
	t.acquired[uid] = acquisition{epoch: epoch, interval: interval}
}

// isCertain reports that a claim this instance wrote is still its own.
func (t *leaseCertainty) isCertain(uid types.UID, epoch int64, now time.Time) bool {
	return t.isFresh(now) && t.acquired[uid] == acquisition{epoch: epoch, interval: t.interval}
}
