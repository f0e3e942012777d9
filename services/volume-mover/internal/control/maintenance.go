package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

const (
	// maintenancePause is the time between two looks at all repositories, and followPause that while a mover maintains one.
	maintenancePause = 30 * time.Second
	followPause      = 5 * time.Second
	// maxMaintenance is how many are maintained at once.
	maxMaintenance = 2
	// maintenanceDeadline is after how long a run is ended.
	maintenanceDeadline = 24 * time.Hour
	// retryPause is the longest time until a run that failed is repeated.
	retryPause = time.Hour
)

// MaintainRepositories has movers maintain the repositories until ctx ends, and returns nil.
func (c *Controller) MaintainRepositories(ctx context.Context) error {
	defer c.Metrics.hideRepositories()
	for {
		pause := maintenancePause
		running, err := c.MaintainDue(ctx)
		if running > 0 {
			pause = followPause
		}
		if err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "Failed to maintain repositories; will retry", "error", err)
		}
		if err := c.RemoveLeftFiles(ctx); err != nil && ctx.Err() == nil {
			c.Log.WarnContext(ctx, "Failed to remove mover Pods that nobody waits for; will retry", "error", err)
		}
		if retry.Pause(ctx, c.Clock, pause) != nil {
			return nil
		}
	}
}

// MaintainDue starts movers for the repositories that are due, those that wait longest first, and writes down what
// became of those that have ended, also of repositories that are maintained no more: their Secrets have keys. It returns
// how many run.
func (c *Controller) MaintainDue(ctx context.Context) (running int, err error) {
	all, pods := &velerov1.BackupRepositoryList{}, &corev1.PodList{}
	inNamespace := client.InNamespace(c.Movers.Namespace)
	if err := c.Client.List(ctx, all, inNamespace); err != nil {
		return 0, fmt.Errorf("list BackupRepositories: %w", err)
	}
	if err := c.Client.List(ctx, pods, inNamespace, client.MatchingLabels{moverpod.LabelMover: moverpod.ValueMaintain}); err != nil {
		return 0, fmt.Errorf("list mover Pods: %w", err)
	}
	var errs []error
	var due []*velerov1.BackupRepository
	maintained, err := c.selectMaintained(ctx, all.Items)
	errs = append(errs, err)
	for n := range all.Items {
		r := &all.Items[n]
		i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == maintenancePod(r) })
		switch {
		case i >= 0:
			runs, err := c.followMaintenance(ctx, r, &pods.Items[i])
			if errs = append(errs, err); runs {
				running++
			}
		case slices.Contains(maintained, r) && !metav1.HasAnnotation(r.ObjectMeta, holdfast.AnnotationMaintenanceStopped) && !c.Clock.Now().Before(c.nextMaintenance(r)):
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *velerov1.BackupRepository) int { return c.nextMaintenance(a).Compare(c.nextMaintenance(b)) })
	for _, r := range due[:min(len(due), max(maxMaintenance-running, 0))] {
		running++
		errs = append(errs, c.startMaintenance(ctx, r))
	}
	return running, errors.Join(errs...)
}

// selectMaintained returns the repositories that are to be maintained, and shows when they were.
func (c *Controller) selectMaintained(ctx context.Context, all []velerov1.BackupRepository) (found []*velerov1.BackupRepository, err error) {
	writable := map[string]bool{} // locations
	c.Metrics.hideRepositories()
	if c.MaintenanceInterval <= 0 {
		return nil, nil
	}
	for i := range all {
		r := &all[i]
		name, phase := r.Spec.BackupStorageLocation, r.Status.Phase
		if r.Spec.RepositoryType != uploaderKopia || r.DeletionTimestamp != nil || phase != velerov1.BackupRepositoryPhaseReady && phase != velerov1.BackupRepositoryPhaseNotReady {
			continue
		}
		if _, known := writable[name]; !known {
			loc := &velerov1.BackupStorageLocation{}
			readErr := c.Reader.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, loc)
			writable[name] = readErr == nil && loc.Spec.AccessMode != velerov1.LocationModeReadOnly
			err = errors.Join(err, client.IgnoreNotFound(readErr))
		}
		if writable[name] {
			found = append(found, r)
			c.Metrics.maintained.WithLabelValues(r.Name).Set(float64(lastMaintenance(r).Unix()))
			c.Metrics.interval.WithLabelValues(r.Name).Set(c.intervalOf(r).Seconds())
		}
	}
	return found, err
}

// lastMaintenance is when a repository was last maintained, or made if it never was.
func lastMaintenance(r *velerov1.BackupRepository) time.Time {
	return ptr.Deref(r.Status.LastMaintenanceTime, r.CreationTimestamp).Time
}

// intervalOf is the time between two runs.
func (c *Controller) intervalOf(r *velerov1.BackupRepository) time.Duration {
	if d := r.Spec.MaintenanceFrequency.Duration; d > 0 {
		return d
	}
	return c.MaintenanceInterval
}

// nextMaintenance is when a repository is due. A run that failed is repeated after the same time, or after retryPause
// if that is less.
func (c *Controller) nextMaintenance(r *velerov1.BackupRepository) time.Time {
	interval := c.intervalOf(r)
	next := lastMaintenance(r).Add(interval)
	if n := len(r.Status.RecentMaintenance); n > 0 {
		last := r.Status.RecentMaintenance[n-1]
		if retry := ptr.Deref(last.CompleteTimestamp, metav1.Time{}).Add(min(interval, retryPause)); last.Result == maintenanceFailed && retry.After(next) {
			next = retry
		}
	}
	return next
}

// maintenancePod is the name of the mover Pod that maintains a repository.
func maintenancePod(r *velerov1.BackupRepository) string { return hashName("maintain-", r.Name) }

// startMaintenance makes the mover Pod. What refuses it is noted as a run that failed.
func (c *Controller) startMaintenance(ctx context.Context, r *velerov1.BackupRepository) error {
	pod := moverpod.BuildPod(c.Movers, moverpod.Mover{
		Name: maintenancePod(r), Labels: moverpod.BuildLabels(moverpod.ValueMaintain, ""),
		Owners: []metav1.OwnerReference{{
			APIVersion: velerov1.GroupVersion.String(), Kind: "BackupRepository", Name: r.Name, UID: r.UID, Controller: ptr.To(true),
		}},
		Args: moverpod.Maintain{
			Namespace: r.Spec.VolumeNamespace, Holder: fmt.Sprintf("BackupRepository %s/%s (UID %s)", r.Namespace, r.Name, r.UID), FullInterval: c.FullMaintenanceInterval,
		}.BuildArgs(),
	})
	pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(maintenanceDeadline.Seconds()))
	err := c.startRepositoryPod(ctx, r.Spec.BackupStorageLocation, pod)
	var refusal *moverpod.RefusalError
	if errors.As(err, &refusal) || apierrors.IsNotFound(err) || kube.IsRefused(err) {
		return c.noteMaintenance(ctx, r, metav1.NewTime(c.Clock.Now()), outcome.Result{Phase: outcome.Failed, Message: err.Error()})
	}
	return err
}

// followMaintenance writes down what became of a mover that has ended, and reports whether it still runs.
func (c *Controller) followMaintenance(ctx context.Context, r *velerov1.BackupRepository, pod *corev1.Pod) (runs bool, err error) {
	result := outcome.Result{Phase: outcome.Failed}
	switch {
	case c.isPodLost(pod):
		result.Message = "the mover Pod was deleted, and its node " + pod.Spec.NodeName + " does not say that it has ended"
	case pod.DeletionTimestamp != nil: // another one follows it
		return false, nil
	case hasEnded(pod) || terminationOf(pod) != nil:
		result = c.readResult(ctx, pod)
	case pod.Status.Phase == corev1.PodRunning:
		return true, nil
	default:
		reason, patience := c.waitReason(pod)
		if patience > 0 && c.Clock.Since(pod.CreationTimestamp.Time) < c.PrepareTimeout {
			return true, c.ensureRepositorySecret(ctx, r.Spec.BackupStorageLocation, pod)
		}
		result.Message = "the mover Pod did not start: " + cmp.Or(reason, "its node has not begun")
	}
	if err := c.noteMaintenance(ctx, r, pod.CreationTimestamp, result); err != nil {
		return false, err
	}
	if err := c.removeRepositoryPod(ctx, pod); err != nil || !result.Empty {
		return false, err
	}
	return false, c.endRepository(ctx, r)
}

// endRepository removes a BackupRepository that has no data any more, if its namespace is gone. The next backup of such
// a namespace makes it again.
func (c *Controller) endRepository(ctx context.Context, r *velerov1.BackupRepository) error {
	err := c.Reader.Get(ctx, client.ObjectKey{Name: r.Spec.VolumeNamespace}, &corev1.Namespace{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := c.Client.Delete(ctx, r, client.Preconditions{UID: ptr.To(r.UID), ResourceVersion: ptr.To(r.ResourceVersion)}); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.Log.InfoContext(ctx, "Removed a BackupRepository whose namespace and data are gone", "repository", r.Name, "namespace", r.Spec.VolumeNamespace)
	return nil
}
