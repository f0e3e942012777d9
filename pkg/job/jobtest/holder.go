package jobtest

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
)

// Holder is an instance without a Lease, for an engine under test: which others live, and when its
// claim is lost, is what the test says. It implements engine.Instance. Fields are set before a job
// runs; its methods are safe for concurrent use.
type Holder struct {
	Name string
	// Alive are the others that live.
	Alive map[string]bool
	// ConfirmWith, unless nil, answers Confirm.
	ConfirmWith func(obj client.Object) error
	// Died is what Expired returns.
	Died chan string

	mu   sync.Mutex
	lose context.CancelCauseFunc
	seen func(client.Object)
}

// Ready implements engine.Instance.
func (h *Holder) Ready() bool { return true }

// Expired implements engine.Instance.
func (h *Holder) Expired() <-chan string { return h.Died }

// Acquire implements engine.Instance.
func (h *Holder) Acquire(_ context.Context, obj metav1.Object) (claim.Claim, error) {
	return h.nextClaim(obj)
}

func (h *Holder) nextClaim(obj metav1.Object) (claim.Claim, error) {
	c, _, err := claim.Parse(obj)
	if err != nil {
		return claim.Claim{}, err
	}
	if c.Owner != h.Name && h.Alive[c.Owner] {
		return claim.Claim{}, &claim.HeldError{Owner: c.Owner}
	}
	return claim.Claim{Owner: h.Name, Epoch: c.Epoch + 1}, nil
}

// Held implements engine.Instance.
func (h *Holder) Held(obj metav1.Object) error {
	_, err := h.nextClaim(obj)
	return err
}

// Guard implements engine.Instance.
func (h *Holder) Guard(ctx context.Context, _ client.Object, seen func(client.Object)) (context.Context, context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, lose := context.WithCancelCause(ctx)
	h.lose, h.seen = lose, seen
	return ctx, func() { lose(context.Canceled) }
}

// Confirm implements engine.Instance.
func (h *Holder) Confirm(ctx context.Context, obj client.Object) error {
	if h.ConfirmWith != nil {
		return h.ConfirmWith(obj)
	}
	return context.Cause(ctx)
}

// LoseClaim ends what was guarded last, as a claim that is lost does.
func (h *Holder) LoseClaim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lose != nil {
		h.lose(claim.ErrLost)
	}
}

// Show shows a state of the object to the job that was guarded last.
func (h *Holder) Show(obj client.Object) {
	h.mu.Lock()
	seen := h.seen
	h.mu.Unlock()
	seen(obj)
}
