package caller

import (
	"context"
	"fmt"
	"net"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/peer"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// How many reviews a service asks of the API server at most. Those for one address are fewer than
// those for all, so that no address uses up all.
const (
	// ReviewsPerSecond is for all callers.
	ReviewsPerSecond = 50
	// ReviewsAtOnce is for all callers, after a time without reviews.
	ReviewsAtOnce = 200
	// ReviewsPerSecondOfAddress is for the callers of one address.
	ReviewsPerSecondOfAddress = 10
	// ReviewsAtOnceOfAddress is for the callers of one address, after a time without reviews.
	ReviewsAtOnceOfAddress = 50

	addressesRemembered = 1024
)

// hostLimits are the rates of reviews. It is safe for concurrent use.
type hostLimits struct {
	clock     clock.PassiveClock
	all       *rate.Limiter
	mu        *sync.Mutex
	addresses *lru.Cache // *rate.Limiter by host
}

func newLimits(clk clock.PassiveClock) hostLimits {
	return hostLimits{clock: clk, all: rate.NewLimiter(ReviewsPerSecond, ReviewsAtOnce), mu: &sync.Mutex{}, addresses: lru.New(addressesRemembered)}
}

// takeReview allows one review, or refuses it with an error that wraps errgrpc.ErrUnavailable.
func (l hostLimits) takeReview(ctx context.Context) error {
	now := l.clock.Now()
	if !l.limiterOf(peerHost(ctx)).AllowN(now, 1) || !l.all.AllowN(now, 1) {
		return fmt.Errorf("too many callers to review: %w", errgrpc.ErrUnavailable)
	}
	return nil
}

func (l hostLimits) limiterOf(host string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.addresses.Get(host); ok {
		if limiter, ok := known.(*rate.Limiter); ok {
			return limiter
		}
	}
	limiter := rate.NewLimiter(ReviewsPerSecondOfAddress, ReviewsAtOnceOfAddress)
	l.addresses.Add(host, limiter)
	return limiter
}

// peerHost is the address of a caller without its port.
func peerHost(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(p.Addr.String())
	if err != nil {
		return p.Addr.String()
	}
	return host
}
