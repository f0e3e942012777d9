package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

const (
	// preparePause is the time between two looks for repositories that a node-agent waits for.
	preparePause = 2 * time.Second
	// prepareRetry is the time after which a repository that is NotReady is tried again (Velero 1.18).
	prepareRetry = 5 * time.Minute
)

// PrepareRepositories does until ctx ends what Velero's node-agent leaves to the server: it makes the password of the
// repositories, and has movers create the repository of each new BackupRepository, which the agent waits for to be Ready.
func (c *Controller) PrepareRepositories(ctx context.Context) error {
	ticker := c.Clock.NewTicker(preparePause)
	defer ticker.Stop()
	ensured, tried := false, map[types.UID]time.Time{}
	for {
		var err error
		if !ensured {
			err = c.ensurePassword(ctx)
			ensured = err == nil
		}
		if err = errors.Join(err, c.PrepareNew(ctx, tried)); err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "Failed to prepare repositories for Velero's node-agent; will retry", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// PrepareNew starts movers for the repositories that nobody has prepared, or failed to, and writes down what became of
// those that have ended. tried has when each was tried last.
func (c *Controller) PrepareNew(ctx context.Context, tried map[types.UID]time.Time) error {
	all := &velerov1.BackupRepositoryList{}
	if err := c.Client.List(ctx, all, client.InNamespace(c.Movers.Namespace)); err != nil {
		return fmt.Errorf("list BackupRepositories: %w", err)
	}
	var errs []error
	for i := range all.Items {
		r := &all.Items[i]
		if r.Spec.RepositoryType == uploaderKopia && r.DeletionTimestamp == nil && r.Status.Phase != velerov1.BackupRepositoryPhaseReady {
			errs = append(errs, c.prepareRepository(ctx, r, tried))
		}
	}
	return errors.Join(errs...)
}

// prepareRepository takes the next step with a repository that is not Ready.
func (c *Controller) prepareRepository(ctx context.Context, r *velerov1.BackupRepository, tried map[types.UID]time.Time) error {
	pod := &corev1.Pod{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: preparationPod(r)}, pod)
	switch {
	case err == nil:
		return c.followPreparation(ctx, r, pod)
	case !apierrors.IsNotFound(err):
		return err
	case r.Status.Phase == velerov1.BackupRepositoryPhaseNotReady && c.Clock.Since(tried[r.UID]) < prepareRetry:
		return nil
	}
	tried[r.UID] = c.Clock.Now()
	loc := &velerov1.BackupStorageLocation{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Spec.BackupStorageLocation}, loc); client.IgnoreNotFound(err) != nil {
		return err
	}
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly { // nothing can be created: the agent finds out what there is
		return c.notePreparation(ctx, r, outcome.Result{Phase: outcome.Completed})
	}
	err = c.startRepositoryPod(ctx, r.Spec.BackupStorageLocation, moverpod.BuildPod(c.Movers, moverpod.Mover{
		Name: preparationPod(r), Labels: moverpod.BuildLabels(moverpod.ValueMaintain, ""),
		Owners: []metav1.OwnerReference{{
			APIVersion: velerov1.GroupVersion.String(), Kind: "BackupRepository", Name: r.Name, UID: r.UID, Controller: ptr.To(true),
		}},
		Args: moverpod.BuildCreateArgs(r.Spec.VolumeNamespace),
	}))
	var refusal *moverpod.RefusalError
	if errors.As(err, &refusal) || apierrors.IsNotFound(err) || kube.IsRefused(err) {
		return c.notePreparation(ctx, r, outcome.Result{Phase: outcome.Failed, Message: err.Error()})
	}
	return err
}

// preparationPod is the name of the mover Pod that creates a repository.
func preparationPod(r *velerov1.BackupRepository) string { return hashName("prepare-", r.Name) }

// followPreparation writes down what became of a mover that has ended, or does not start.
func (c *Controller) followPreparation(ctx context.Context, r *velerov1.BackupRepository, pod *corev1.Pod) error {
	result := outcome.Result{Phase: outcome.Failed}
	switch {
	case c.isPodLost(pod):
		return c.removeRepositoryPod(ctx, pod)
	case pod.DeletionTimestamp != nil:
		return nil
	case hasEnded(pod) || terminationOf(pod) != nil:
		result = c.readResult(ctx, pod)
	case pod.Status.Phase == corev1.PodRunning:
		return nil
	default:
		reason, patience := c.waitReason(pod)
		if patience > 0 && c.Clock.Since(pod.CreationTimestamp.Time) < c.PrepareTimeout {
			return c.ensureRepositorySecret(ctx, r.Spec.BackupStorageLocation, pod)
		}
		result.Message = "the mover Pod did not start: " + reason
	}
	if err := c.notePreparation(ctx, r, result); err != nil {
		return err
	}
	return c.removeRepositoryPod(ctx, pod)
}

// notePreparation makes a repository Ready, or NotReady with the reason.
func (c *Controller) notePreparation(ctx context.Context, r *velerov1.BackupRepository, result outcome.Result) error {
	phase := velerov1.BackupRepositoryPhaseNotReady
	if result.Phase == outcome.Completed {
		phase, result.Message = velerov1.BackupRepositoryPhaseReady, ""
	}
	return client.IgnoreNotFound(kube.Update(ctx, c.Reader, c.Client, r, func(fresh *velerov1.BackupRepository) error {
		fresh.Status.Phase, fresh.Status.Message = phase, result.Message
		if fresh.Spec.MaintenanceFrequency.Duration <= 0 { // as the agent makes it
			fresh.Spec.MaintenanceFrequency.Duration = cmp.Or(c.MaintenanceInterval, maintenanceFrequency)
		}
		return nil
	}))
}
