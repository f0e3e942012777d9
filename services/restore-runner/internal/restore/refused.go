package restore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/actions"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/flight"
)

// orderRefusedError is that of an object which was to be created before its owners.
type orderRefusedError struct {
	err    error
	owners []flight.Reference
}

// Error implements error.
func (r *orderRefusedError) Error() string { return r.err.Error() }

// refusedAsIs reports that the API server, or what admits, would not have the object as it is.
// Whether the missing owners are the reason is known only after another attempt with them.
func refusedAsIs(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code == http.StatusForbidden || code == http.StatusUnprocessableEntity || code == http.StatusBadRequest
}

// yieldToOwners keeps the object until its owners have an outcome, and lets them, and whatever else
// waits for it, go first.
func (p *objectRestorer) yieldToOwners(ctx context.Context, v int32, s *actions.PendingState, refused *orderRefusedError) *dispatch.Wait {
	s.Entry.Info(fmt.Sprintf("refused without its owners, is created after them: %v", refused.err))
	s.Yielded = true
	wait := &dispatch.Wait{}
	p.yieldPlace(v, wait)
	for _, ref := range refused.owners {
		if !slices.Contains(wait.On, ref.Node) {
			wait.On = append(wait.On, ref.Node)
		}
	}
	if err := p.pending.Keep(v, s, wait); err != nil {
		p.finisher.Fail(ctx, s.Entry, v, err)
		return nil
	}
	failpoint.Hit("restore-runner/yielded")
	return wait
}

// yieldPlace lets what waits for the object proceed before it, but for what comes when everything else has
// an outcome, and another object of its name.
func (p *objectRestorer) yieldPlace(v int32, wait *dispatch.Wait) {
	wait.Yield, wait.Hold = true, p.plan.Barriers(v)
	if rival, ok := p.plan.RivalAfter(v); ok {
		wait.Hold = append(wait.Hold, rival)
	}
}

// releaseGuarded lets Pods and workloads proceed before an object that guards them, once it waits for a
// webhook in a namespace of the restore: the webhook may be served by one of them.
func (p *objectRestorer) releaseGuarded(v int32, s *actions.PendingState, wait *dispatch.Wait, cause error) {
	if s.Released || !p.plan.Guards(v) {
		return
	}
	namespace := apply.WebhookNamespace(cause)
	if !slices.ContainsFunc(p.plan.Namespaces(), func(n plan.Namespace) bool { return n.Target == namespace }) {
		return
	}
	s.Released = true
	p.yieldPlace(v, wait)
	s.Entry.Warn(fmt.Sprintf("Pods and workloads that it guards come before it: its creation waits for a webhook in namespace %q, which this restore brings back: %v", namespace, cause))
}
