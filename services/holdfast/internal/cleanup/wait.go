package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// A Lease that was seen unchanged for unrenewed, or for a part of its duration if that is longer, is
// not held any more: an instance renews its Lease at least every 15 s and a duty's every 23 s, unless
// its timeout is longer, and an idle instance declares ten timeouts. A service whose rights are
// removed with it, as by an uninstallation, cannot release its Lease.
//
// What a Lease says of its renewal is compared with this machine's clock only if it expired long ago,
// by maxSkew, the difference that clocks may have.
const (
	unrenewed     = 45 * time.Second
	unrenewedPart = 10
	maxSkew       = 5 * time.Minute
)

// serviceWatcher looks at what runs. It is used by one goroutine.
type serviceWatcher struct {
	Config
	leases map[string]leaseSighting // by name
}

// leaseSighting is since when a Lease was seen at a version.
type leaseSighting struct {
	version string
	since   time.Time
}

// awaitStopped returns the Leases of the services once none of these runs.
func (w *serviceWatcher) awaitStopped(ctx context.Context) (leases []client.Object, err error) {
	var running *RunningError
	loop := retry.Loop{Clock: w.Clock, Log: w.Log, Longest: longestPause, Transient: func(err error) bool {
		return errors.As(err, &running) || kube.IsTransient(err)
	}}
	err = loop.Do(ctx, "wait until no service runs", func() error {
		leases, err = w.readLeases(ctx)
		return err
	})
	if err != nil && ctx.Err() != nil && running != nil {
		return nil, running // what was seen last, whatever the end of ctx broke off
	}
	return leases, err
}

// readLeases returns the Leases of the services, or a *RunningError.
func (w *serviceWatcher) readLeases(ctx context.Context) ([]client.Object, error) {
	pods, leases := &corev1.PodList{}, &coordinationv1.LeaseList{}
	here := client.InNamespace(w.Namespace)
	if err := w.Client.List(ctx, pods, here, client.MatchingLabels{"app.kubernetes.io/part-of": "holdfast"}); err != nil {
		return nil, fmt.Errorf("list the Pods of %s: %w", w.Namespace, err)
	}
	// After the Pods: a Lease that one of them wrote at its end is among these.
	if err := w.Client.List(ctx, leases, here); err != nil {
		return nil, fmt.Errorf("list the Leases of %s: %w", w.Namespace, err)
	}
	var running []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !over && slices.Contains(w.Services, pod.Labels["app.kubernetes.io/component"]) {
			running = append(running, "Pod/"+pod.Name)
		}
	}
	var ours []client.Object
	for i := range leases.Items {
		lease := &leases.Items[i]
		if !claim.IsInstance(lease) && !leaderelection.IsDuty(lease) {
			continue
		}
		ours = append(ours, lease)
		if w.isLeaseHeld(lease, w.Clock.Now()) {
			running = append(running, nameOf(lease))
		}
	}
	if len(running) > 0 {
		return nil, &RunningError{Running: running}
	}
	return ours, nil
}

// isLeaseHeld reports whether a Lease was neither released, nor expired long ago, nor was seen unchanged for
// too long.
func (w *serviceWatcher) isLeaseHeld(lease *coordinationv1.Lease, now time.Time) bool {
	seen, known := w.leases[lease.Name]
	if !known || seen.version != lease.ResourceVersion {
		seen = leaseSighting{version: lease.ResourceVersion, since: now}
		w.leases[lease.Name] = seen
	}
	spec := &lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false
	}
	duration := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	return now.Before(spec.RenewTime.Add(duration+maxSkew)) && now.Sub(seen.since) < max(unrenewed, duration/unrenewedPart)
}
