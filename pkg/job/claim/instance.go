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
	// A Lease that was not renewed for this many timeouts is deleted.
	sweepTimeouts = 20
	// releaseLimit bounds the last write of a stopping instance.
	releaseLimit = 5 * time.Second
)

// Config describes an instance.
type Config struct {
	Reader    client.Reader // uncached (Manager.GetAPIReader)
	Client    client.Client // writes
	Namespace string
	Name      string // unique per process start; part of an object name
	Address   string // where this instance answers gRPC
	// OperationsOf is the kind of the jobs whose operations can be begun in this instance; empty for
	// none.
	OperationsOf string
	Timeout      time.Duration // a holder unchanged for this long is dead; 0 means 30 s
	// Predecessors are instances known to be gone because this process holds the lock of the data
	// directory they used: their claims are free at once.
	Predecessors []string
	Clock        clock.WithTicker
	Log          *slog.Logger
}

// beat is the time between two renewals. Short timeouts have half as many beats, so that they do
// not become a load.
func (c *Config) beat() time.Duration {
	return max(c.Timeout/beatsPerTimeout, min(2*c.Timeout/beatsPerTimeout, shortBeat))
}

// Instance is this process as a holder of claims and a watcher of others. Safe for concurrent use.
type Instance struct {
	cfg     Config
	expired chan string

	mu        sync.Mutex
	ready     bool
	certainty certainty
	watch     watch
}

// NewInstance prepares an instance; Run brings it to life.
func NewInstance(cfg Config) *Instance {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Instance{cfg: cfg, expired: make(chan string, 64), certainty: newCertainty(cfg.Timeout), watch: newWatch(cfg)}
}

// Name is the name this instance writes into claims.
func (i *Instance) Name() string { return i.cfg.Name }

// Run holds the Lease and watches all instance Leases until ctx ends, then releases the Lease and
// returns nil. Failing calls are logged and repeated.
func (i *Instance) Run(ctx context.Context) error {
	ticker := i.cfg.Clock.NewTicker(i.cfg.beat())
	defer ticker.Stop()
	looked := false // for a death, just now
	for {
		i.beat(ctx)
		death, stop := i.nextDeath(looked)
		select {
		case <-ctx.Done():
			stop()
			i.leave(context.WithoutCancel(ctx))
			return nil
		case <-ticker.C():
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
	next := i.watch.nextDeath()
	i.mu.Unlock()
	left := next.Sub(now)
	if next.IsZero() || left <= 0 && looked || left >= i.cfg.beat() {
		return nil, func() {}
	}
	timer := i.cfg.Clock.NewTimer(left)
	return timer.C(), func() { timer.Stop() }
}

// beat renews the Lease and reads the others once. An answer counts only if this instance could
// renew just before and finds that very renewal in it: with a server that takes no writes no
// instance can renew, and one that answers from an old cache omits renewals that took place.
func (i *Instance) beat(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, i.cfg.Timeout/gapsPerTimeout)
	defer cancel()
	version, err := i.renew(limited)
	if err != nil {
		i.report(ctx, "instance lease not renewed", err)
		return
	}
	asked := i.cfg.Clock.Now()
	leases, err := i.leases(limited)
	if err == nil && !shows(leases, i.cfg.Name, version) {
		err = errStale
	}
	if err != nil {
		i.report(ctx, "instance leases not read", err)
		return
	}
	i.mu.Lock()
	dead := i.watch.observe(leases, asked, i.cfg.Clock.Now())
	stale := i.watch.sweepable(asked)
	i.mu.Unlock()
	i.announce(dead)
	i.sweep(limited, stale)
}

func (i *Instance) report(ctx context.Context, msg string, err error) {
	if ctx.Err() == nil {
		i.cfg.Log.Warn(msg, //nolint:sloglint // callers pass constants
			"instance", i.cfg.Name, "error", err)
	}
}

// announce delivers each death once; one for which the channel is full is tried at the next beat.
func (i *Instance) announce(dead []string) {
	for _, name := range dead {
		select {
		case i.expired <- name:
			i.mu.Lock()
			i.watch.markAnnounced(name)
			i.mu.Unlock()
			i.cfg.Log.Info("instance is gone", "instance", name)
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

// Acquire returns the claim to write, in the same patch as the phase: this instance with the epoch
// raised by one. A *HeldError while another instance holds the object and has not been watched
// dying; an unknown holder is watched from the call on.
func (i *Instance) Acquire(obj metav1.Object) (Claim, error) {
	held, found, err := Parse(obj)
	if err != nil {
		return Claim{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ready {
		return Claim{}, fmt.Errorf("instance %s has no lease yet", i.cfg.Name)
	}
	now := i.cfg.Clock.Now()
	if found && held.Holder != "" && held.Holder != i.cfg.Name && !i.watch.dead(held.Holder, now) {
		return Claim{}, &HeldError{Holder: held.Holder, Address: held.Address}
	}
	i.certainty.acquiring(obj.GetUID(), held.Epoch+1, now)
	return Claim{Holder: i.cfg.Name, Address: i.cfg.Address, Epoch: held.Epoch + 1}, nil
}
