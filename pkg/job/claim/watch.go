package claim

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// leaseWatch is what one instance has seen of the others, on its own clock. A holder is dead when its
// Lease was released, or was seen unchanged (or absent) for the duration that it declares while the
// API server answered.
type leaseWatch struct {
	timeout time.Duration
	self    string
	answer  time.Time // when the API server was last asked with success
	got     time.Time // when that answer was here
	seen    map[string]*watchedOwner
}

type watchedOwner struct {
	version   string        // resourceVersion of the Lease; empty while there is none
	duration  time.Duration // for how long the Lease may stay unchanged, as it declared last
	first     time.Time     // when this version was seen first
	looks     int           // answers that showed this version
	since     time.Time     // unchanged since, as far as answers reach back without a gap
	dead      bool
	announced bool
}

func newWatch(cfg Config) leaseWatch {
	return leaseWatch{timeout: cfg.Timeout, self: cfg.Name, seen: map[string]*watchedOwner{}}
}

// observeLeases notes a list of Leases, requested at asked and received at got, and returns the holders
// whose death is not announced yet. A Lease that changed counts as renewed at got, one that did not
// as unchanged until asked: the time between is never counted against a holder.
func (w *leaseWatch) observeLeases(leases []coordinationv1.Lease, asked, got time.Time) []string {
	if w.isOutdated(asked) {
		w.restartWatches(got)
	}
	w.answer, w.got = asked, got
	present := make(map[string]bool, len(leases))
	for _, lease := range leases {
		present[lease.Name] = true
		w.updateHolder(lease.Name, lease.ResourceVersion, w.declaredDuration(&lease), isReleased(&lease))
	}
	for name := range w.seen {
		if !present[name] {
			w.updateHolder(name, "", 0, false)
		}
	}
	var news []string
	for name, h := range w.seen {
		if h.dead && !h.announced {
			news = append(news, name)
		}
	}
	slices.Sort(news)
	return news
}

// isOutdated reports that the last answer is too old to go by.
func (w *leaseWatch) isOutdated(now time.Time) bool {
	return now.Sub(w.answer) > w.timeout/gapsPerTimeout
}

// restartWatches resets how long each holder was watched: there was a gap in which the API server did not
// answer, or this process did not run.
func (w *leaseWatch) restartWatches(now time.Time) {
	for _, h := range w.seen {
		h.since = now
	}
}

// updateHolder updates one holder. A death is final: names are never used again, except that a Lease
// renewed after all (a process that was paused) counts as alive. One whose Lease was deleted may
// write it again as late as it would have renewed it.
func (w *leaseWatch) updateHolder(name, version string, duration time.Duration, released bool) {
	if name == w.self {
		return
	}
	h, known := w.seen[name]
	switch {
	case !known:
		h = &watchedOwner{version: version, duration: duration, first: w.got, since: w.got}
		w.seen[name] = h
	case version != h.version && version != "":
		*h = watchedOwner{version: version, duration: duration, first: w.got, since: w.got}
	case version != h.version || h.since.IsZero():
		h.version, h.first, h.looks, h.since = version, w.got, 0, w.got
	}
	h.looks++
	if released || w.answer.Sub(h.since) >= h.duration {
		h.dead = true
	}
}

// isHolderDead reports whether a holder is known to be dead; an unknown one is watched from the next answer
// on. After an outdated answer none is: the holder may have renewed since, and if it has not, its
// death is announced once more.
func (w *leaseWatch) isHolderDead(name string, now time.Time) bool {
	h, known := w.seen[name]
	switch {
	case !known:
		w.seen[name] = &watchedOwner{duration: w.timeout}
		return false
	case h.dead && w.isOutdated(now):
		h.announced = false
		return false
	}
	return h.dead
}

// nextDeath is when the first live holder will be dead unless its Lease is renewed; zero without
// one.
func (w *leaseWatch) nextDeath() time.Time {
	var next time.Time
	for name, h := range w.seen {
		if name == w.self || h.dead || h.since.IsZero() {
			continue
		}
		if at := h.since.Add(h.duration); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

func (w *leaseWatch) markAnnounced(name string) {
	if h := w.seen[name]; h != nil {
		h.announced = true
	}
}

// sweepableLeases returns the Leases (name to resourceVersion) that were not renewed for so long that
// they may be deleted. The holder is forgotten with its Lease. That an answer is missing between
// others does not matter here: an instance that lives writes its Lease again.
func (w *leaseWatch) sweepableLeases(now time.Time) map[string]string {
	stale := map[string]string{}
	for name, h := range w.seen {
		if h.dead && !h.announced || h.looks < sweepLooks || now.Sub(h.first) < max(sweepTimeouts*w.timeout, 2*h.duration) {
			continue
		}
		if h.version == "" {
			delete(w.seen, name)
			continue
		}
		stale[name] = h.version
	}
	return stale
}

// declaredDuration is the duration that a Lease declares. In Leases it is rounded up to seconds; what this
// instance would declare itself is taken exactly.
func (w *leaseWatch) declaredDuration(lease *coordinationv1.Lease) time.Duration {
	seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)
	if seconds <= leaseSeconds(w.timeout) {
		return w.timeout
	}
	return time.Duration(seconds) * time.Second
}

// leaseSeconds is a duration as a Lease declares it.
func leaseSeconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

// isReleased reports that an instance gave its Lease up when it stopped.
func isReleased(lease *coordinationv1.Lease) bool {
	return lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == ""
}
