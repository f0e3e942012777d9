package claim

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

const (
	// peersFresh is for how long an answer about an instance is used again.
	peersFresh = time.Second
	// peersTick is the shortest time between two reads of Run, looksPerTimeout the number of reads
	// within the duration of a Lease.
	peersTick       = 500 * time.Millisecond
	looksPerTimeout = 6
	// peersForgotten is after how long without a question an instance is forgotten.
	peersForgotten = time.Hour
)

// Peers finds instances for a process that holds no claims. One has ended when its Lease was
// released, or was seen unchanged, or absent, for its whole duration: by the clock of this process,
// and without a gap in which the API server did not answer, or the Lease was not read. Safe for
// concurrent use.
type Peers struct {
	reader    client.Reader
	namespace string
	clock     clock.WithTicker

	mu   sync.Mutex
	seen map[string]*peer
}

// peer is what was seen of one instance.
type peer struct {
	looking sync.Mutex // one request at a time

	address string
	version string // resourceVersion of its Lease; empty while there is none
	timeout time.Duration
	since   time.Time // unchanged since
	looked  time.Time // the last answer
	wanted  time.Time // the last question
	gone    bool
}

// NewPeers returns Peers of a namespace. reader must not be a cache.
func NewPeers(reader client.Reader, namespace string, clk clock.WithTicker) *Peers {
	return &Peers{reader: reader, namespace: namespace, clock: clk, seen: map[string]*peer{}}
}

// Run reads the Leases of instances that Find was called for until ctx ends, and returns nil: the
// end of an instance is detected between two calls as well.
func (p *Peers) Run(ctx context.Context) error {
	ticker := p.clock.NewTicker(peersTick)
	defer ticker.Stop()
	for {
		for _, instance := range p.dueInstances() {
			_, _, _ = p.readPeer(ctx, instance) // the next Find returns the error
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// dueInstances lists the instances to read, and removes those without recent calls of Find.
func (p *Peers) dueInstances() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for name, one := range p.seen {
		if !one.looking.TryLock() {
			continue
		}
		switch {
		case now.Sub(one.wanted) > peersForgotten:
			delete(p.seen, name)
		case !one.gone && now.Sub(one.looked) >= one.timeout/looksPerTimeout:
			names = append(names, name)
		}
		one.looking.Unlock()
	}
	return names
}

// Find returns the gRPC address of the instance, empty if its Lease has none, or that it has ended.
// An error is one of the API server and does not mean that the instance has ended.
func (p *Peers) Find(ctx context.Context, instance string) (address string, gone bool, err error) {
	one := p.getPeer(instance)
	one.looking.Lock()
	one.wanted = p.clock.Now()
	one.looking.Unlock()
	return p.readPeer(ctx, instance)
}

// readPeer reads the Lease of an instance, unless that was done just before.
func (p *Peers) readPeer(ctx context.Context, instance string) (address string, gone bool, err error) {
	one := p.getPeer(instance)
	one.looking.Lock()
	defer one.looking.Unlock()
	now := p.clock.Now()
	if !one.looked.IsZero() && now.Sub(one.looked) < peersFresh {
		return one.address, one.gone, nil
	}
	lease := &coordinationv1.Lease{}
	err = p.reader.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: instance}, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", false, err
	}
	one.updateFrom(lease, now, p.clock.Now())
	return one.address, one.gone, nil
}

// getPeer returns what was seen of an instance.
func (p *Peers) getPeer(instance string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.seen[instance]
	if one == nil {
		one = &peer{timeout: defaultTimeout, wanted: p.clock.Now()}
		p.seen[instance] = one
	}
	return one
}

// updateFrom updates the peer by a read that was sent and answered at these times; the Lease is empty
// where there is none.
func (o *peer) updateFrom(lease *coordinationv1.Lease, asked, got time.Time) {
	gap := o.looked.IsZero() || asked.Sub(o.looked) > o.timeout
	if gap || lease.ResourceVersion != o.version {
		o.version, o.since, o.gone = lease.ResourceVersion, got, false
	}
	o.looked = got
	if lease.ResourceVersion != "" {
		o.address = lease.Annotations[holdfast.AnnotationAddress]
		o.timeout = max(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second, time.Second)
	}
	if lease.ResourceVersion != "" && isReleased(lease) || asked.Sub(o.since) >= o.timeout {
		o.gone = true
	}
}
