package claim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	defaultTimeout = 30 * time.Second
	// The Lease is renewed, and those of others looked at, this many times within the timeout: a
	// holder may miss several and live. A death is seen at most one beat later than it could be.
	beatsPerTimeout = 12
	shortBeat       = 500 * time.Millisecond
	// marginsPerTimeout is the part of the timeout that a holder leaves to requests on their way.
	marginsPerTimeout = 6
	// Answers of the API server further apart than this part of the timeout start the watch of
	// every holder anew: it may have been unable to renew.
	gapsPerTimeout = 2
	// A Lease that was not renewed for this many timeouts, in this many answers, is deleted.
	sweepTimeouts = 20
	sweepLooks    = 5
	// releaseLimit bounds the last write of a stopping instance.
	releaseLimit = 5 * time.Second
)

// Config describes an instance.
type Config struct {
	Reader    client.Reader // uncached (Manager.GetAPIReader)
	Client    client.Client // writes
	Namespace string
	Name      string        // unique per process start; part of an object name
	Address   string        // where this instance answers gRPC
	Timeout   time.Duration // a holder of claims unchanged for this long is dead; 0 means 30 s
	// Busy, unless nil, reports that the end of this instance matters to others although it holds no
	// claim: it stays awake then. Busy must be fast, and must not call back into the instance.
	Busy  func() bool
	Clock clock.WithTicker
	Log   *slog.Logger
}

// beatInterval is the time between two renewals of an instance that is awake. Short timeouts have half as
// many beats, so that they do not become a load.
func (c *Config) beatInterval() time.Duration {
	return max(c.Timeout/beatsPerTimeout, min(2*c.Timeout/beatsPerTimeout, shortBeat))
}

// Instance is this process as a holder of claims and a watcher of others. Safe for concurrent use.
type Instance struct {
	cfg     Config
	expired chan string
	woken   chan struct{}

	turn    chan struct{} // held by who writes the Lease
	version string        // of the Lease as it was written last; belongs to the holder of the turn

	mu        sync.Mutex
	ready     bool
	slow      bool      // others may see a declaration of longer than the timeout
	asked     time.Time // the last question about a claim that has a holder
	holding   int       // guards that run
	beaten    time.Time // the begin of the last beat that was answered
	certainty leaseCertainty
	watch     leaseWatch
}

// NewInstance prepares an instance; Run brings it to life.
func NewInstance(cfg Config) *Instance {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Instance{
		cfg: cfg, expired: make(chan string, 64), woken: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		certainty: newCertainty(cfg.Timeout), watch: newWatch(cfg),
	}
}

// Name is the name this instance writes into claims.
func (i *Instance) Name() string { return i.cfg.Name }

// Run holds the Lease and watches all instance Leases until ctx ends, then releases the Lease and
// returns nil. Failing calls are logged and repeated. While the instance is idle it does both less
// often.
func (i *Instance) Run(ctx context.Context) error {
	ticker := i.cfg.Clock.NewTicker(i.cfg.beatInterval())
	defer ticker.Stop()
	looked := false // for a death, just now
	for {
		if i.isBeatDue() {
			i.runBeat(ctx)
		}
		death, stop := i.nextDeath(looked)
		select {
		case <-ctx.Done():
			stop()
			i.releaseLease(context.WithoutCancel(ctx))
			return nil
		case <-ticker.C():
			looked = false
		case <-i.woken:
			looked = false
		case <-death:
			looked = true
		}
		stop()
	}
}

// nextDeath returns a channel that delivers when a holder that stays silent will have been so for
// the timeout, if that is before the next beat: else its death would be seen a beat late. A moment
// that is over already is due at once, but not repeatedly while the API server does not answer.
func (i *Instance) nextDeath(looked bool) (due <-chan time.Time, stop func()) {
	now := i.cfg.Clock.Now()
	i.mu.Lock()
	awake, next := i.isAwake(now), i.watch.nextDeath()
	i.mu.Unlock()
	left := next.Sub(now)
	if !awake || next.IsZero() || left <= 0 && looked || left >= i.cfg.beatInterval() {
		return nil, func() {}
	}
	timer := i.cfg.Clock.NewTimer(left)
	return timer.C(), func() { timer.Stop() }
}

// runBeat renews the Lease and, when that is due, reads the others once. An answer counts only if this
// instance could renew just before and finds that very renewal in it: with a server that takes no
// writes no instance can renew, and one that answers from an old cache omits renewals that took
// place.
func (i *Instance) runBeat(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, i.cfg.Timeout/gapsPerTimeout)
	defer cancel()
	if i.takeTurn(limited) != nil {
		return
	}
	defer i.endTurn() // after the read: another renewal would hide this one
	begin := i.cfg.Clock.Now()
	if err := i.renewLease(limited, i.declaredDuration); err != nil {
		i.reportError(ctx, "Failed to renew instance Lease; will retry", err)
		return
	}
	i.mu.Lock()
	look := i.isLookDue(begin)
	i.mu.Unlock()
	if !look {
		return
	}
	asked := i.cfg.Clock.Now()
	leases, err := i.listLeases(limited)
	if err == nil && !containsLease(leases, i.cfg.Name, i.version) {
		err = errStale
	}
	if err != nil {
		i.reportError(ctx, "Failed to list instance Leases; will retry", err)
		return
	}
	i.mu.Lock()
	i.beaten = begin
	dead := i.watch.observeLeases(leases, asked, i.cfg.Clock.Now())
	stale := i.watch.sweepableLeases(asked)
	i.mu.Unlock()
	i.announceDead(dead)
	i.sweepLeases(limited, stale)
}

func (i *Instance) reportError(ctx context.Context, msg string, err error) {
	if ctx.Err() == nil {
		i.cfg.Log.Warn(msg, //nolint:sloglint // callers pass constants
			"error", err)
	}
}

// announceDead delivers each death once; one for which the channel is full is tried at the next beat.
func (i *Instance) announceDead(dead []string) {
	for _, name := range dead {
		select {
		case i.expired <- name:
			i.mu.Lock()
			i.watch.markAnnounced(name)
			i.mu.Unlock()
			i.cfg.Log.Info("Instance is gone", "instance", name)
		default:
		}
	}
}

// Ready reports whether the Lease has been written: no claim before that.
func (i *Instance) Ready() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ready
}

// Expired delivers the names of holders seen dying, each once.
func (i *Instance) Expired() <-chan string { return i.expired }

// Held returns nil if the object may be claimed, and a *HeldError while another instance holds it and
// has not been watched dying; an unknown holder is watched from the call on. While such calls come
// the instance stays awake: the death of the holder is detected in time.
func (i *Instance) Held(obj metav1.Object) error {
	_, err := i.claimHeldOn(obj)
	return err
}

// claimHeldOn is Held, and returns the claim that the object carries.
func (i *Instance) claimHeldOn(obj metav1.Object) (Claim, error) {
	held, found, err := Parse(obj)
	if err != nil {
		return Claim{}, err
	}
	if found && held.Owner != "" {
		i.noteInterest()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return held, i.checkFree(held, i.cfg.Clock.Now())
}

// checkFree returns nil if the holder of a claim is this instance, none, or dead. i.mu must be held.
func (i *Instance) checkFree(held Claim, now time.Time) error {
	if !i.ready {
		return fmt.Errorf("instance %s has no lease yet", i.cfg.Name)
	}
	if held.Owner != "" && held.Owner != i.cfg.Name && !i.watch.isHolderDead(held.Owner, now) {
		return &HeldError{Owner: held.Owner, Address: held.Address}
	}
	return nil
}

// Acquire returns the claim to write, in the same patch as the phase: this instance with the epoch
// raised by one. Its errors are those of Held, and those of the call that wakes this instance: the
// Lease declares the timeout before a claim is written.
func (i *Instance) Acquire(ctx context.Context, obj metav1.Object) (Claim, error) {
	held, err := i.claimHeldOn(obj)
	if err != nil {
		return Claim{}, err
	}
	i.noteInterest()
	if err := i.wakeLease(ctx); err != nil {
		return Claim{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.cfg.Clock.Now()
	if err := i.checkFree(held, now); err != nil {
		return Claim{}, err // what was known of the holder became too old meanwhile
	}
	i.certainty.noteAcquiring(obj.GetUID(), held.Epoch+1, now)
	return Claim{Owner: i.cfg.Name, Address: i.cfg.Address, Epoch: held.Epoch + 1}, nil
}
