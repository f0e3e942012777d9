package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

const (
	// forgetTimeout is how long one call waits for its mover.
	forgetTimeout = 10 * time.Minute
	// forgetInterval is the time between two looks at the mover.
	forgetInterval = time.Second
	// removeTimeout bounds the removal of a mover after its call has ended.
	removeTimeout = 10 * time.Second
)

// Snapshots are some of one repository.
type Snapshots struct {
	// Location is the name of the BackupStorageLocation, Namespace the one that has the repository.
	Location, Namespace string
	IDs                 []string
}

// podName is the name of the mover Pod that forgets these snapshots: equal calls share it.
func (s Snapshots) podName() string {
	ids := slices.Sorted(slices.Values(s.IDs))
	return hashName("forget-", append([]string{s.Location, s.Namespace}, ids...)...)
}

// ForgetSnapshots removes snapshots from their repository by a mover, and returns once they are gone. A mover
// that an earlier call started goes on. Errors wrap errgrpc.ErrPrecondition when the mover failed or cannot be,
// and errgrpc.ErrUnavailable when it has not ended in time.
func (c *Controller) ForgetSnapshots(ctx context.Context, s Snapshots) error {
	waiting, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	ticker := c.Clock.NewTicker(forgetInterval)
	defer ticker.Stop()
	for {
		done, err := c.stepForget(waiting, s)
		var refusal *moverpod.RefusalError
		switch {
		case waiting.Err() != nil:
			return c.leaveForget(ctx, s)
		case errors.As(err, &refusal) || apierrors.IsNotFound(err) || kube.IsRefused(err):
			return fmt.Errorf("repository of namespace %s: %w: %w", s.Namespace, errgrpc.ErrPrecondition, err)
		case err != nil || done:
			return err
		}
		select {
		case <-waiting.Done():
		case <-ticker.C():
		}
	}
}

// stepForget takes the next step, and reports whether the snapshots are gone.
func (c *Controller) stepForget(ctx context.Context, s Snapshots) (done bool, err error) {
	pod, err := c.findForgetPod(ctx, s)
	switch {
	case err != nil:
		return false, err
	case pod == nil:
		return false, c.startForget(ctx, s)
	case c.isPodLost(pod):
		return false, c.removeRepositoryPod(ctx, pod)
	case pod.DeletionTimestamp != nil: // another one follows it
		return false, nil
	case !hasEnded(pod):
		if reason, patience := c.waitReason(pod); patience <= 0 {
			return false, errors.Join(&moverpod.RefusalError{Reason: "the mover Pod cannot start: " + reason}, c.removeRepositoryPod(ctx, pod))
		}
		return false, c.ensureRepositorySecret(ctx, s.Location, pod)
	}
	result := c.readResult(ctx, pod)
	if err := c.removeRepositoryPod(ctx, pod); err != nil {
		return false, err
	}
	if result.Phase != outcome.Completed {
		return false, &moverpod.RefusalError{Reason: result.Message}
	}
	c.Log.InfoContext(ctx, "Removed snapshots of volumes", "location", s.Location, "namespace", s.Namespace, "snapshots", len(s.IDs))
	return true, nil
}

// findForgetPod returns the mover Pod; nil if there is none.
func (c *Controller) findForgetPod(ctx context.Context, s Snapshots) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Movers.Namespace, Name: s.podName()}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // no Pod is a normal answer
	case err != nil:
		return nil, fmt.Errorf("mover Pod %s: %w", s.podName(), err)
	}
	return pod, nil
}

// startForget makes the mover Pod.
func (c *Controller) startForget(ctx context.Context, s Snapshots) error {
	return c.startRepositoryPod(ctx, s.Location, moverpod.BuildPod(c.Movers, moverpod.Mover{
		Name: s.podName(), Labels: moverpod.BuildLabels(moverpod.ValueForget, ""),
		Args: moverpod.Forget{Namespace: s.Namespace, Snapshots: s.IDs}.BuildArgs(),
	}))
}

// leaveForget ends a call whose mover has not ended in time. A mover that runs goes on; one that does not is
// removed.
func (c *Controller) leaveForget(ctx context.Context, s Snapshots) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	late := fmt.Errorf("repository of namespace %s: the mover Pod %s has not ended: %w", s.Namespace, s.podName(), errgrpc.ErrUnavailable)
	pod, err := c.findForgetPod(ctx, s)
	if err != nil || pod == nil || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
		return late
	}
	reason, _ := c.waitReason(pod)
	if reason == "" {
		reason = "no node has taken it"
	}
	return errors.Join(fmt.Errorf("%w: %s", late, reason), c.removeRepositoryPod(ctx, pod))
}
