// Package cleanup removes what the services make for themselves in the server namespace: their
// Leases, the ledger and the key that signs links. An uninstallation does not remove these.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/leaderelection"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/objectstore/artifact"
)

// longestPause is between two looks at what still runs.
const longestPause = 3 * time.Second

// Config says where to clean up.
type Config struct {
	Client    client.Client // uncached
	Namespace string
	// Services are the values of the label app.kubernetes.io/component of Pods that have to end first.
	Services []string
	Clock    clock.WithTicker
	Log      *slog.Logger
}

// RunningError names what still runs, as kind/name.
type RunningError struct{ Running []string }

// Error implements error.
func (e *RunningError) Error() string { return "still running: " + strings.Join(e.Running, ", ") }

// Run waits until no Pod of a service exists that has not ended and no Lease is held, then removes
// what the services made, and returns the names of it as kind/name. Nothing is removed while a
// service runs: when ctx ends first, the error wraps *RunningError.
func Run(ctx context.Context, cfg Config) (removed []string, err error) {
	objects, err := wait(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("nothing is removed: %w", err)
	}
	objects = append(objects,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: ledger.Name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: artifact.SecretName}})
	loop := retry.Loop{Clock: cfg.Clock, Log: cfg.Log, Transient: func(err error) bool { return kube.IsTransient(err) && !apierrors.IsConflict(err) }}
	for _, object := range objects {
		name := nameOf(object)
		err := loop.Do(ctx, "remove "+name, func() error { return remove(ctx, cfg.Client, object) })
		switch {
		case err == nil:
			removed = append(removed, name)
		case !apierrors.IsNotFound(err):
			return removed, fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return removed, nil
}

// wait returns the Leases of the services once none of these runs.
func wait(ctx context.Context, cfg Config) (leases []client.Object, err error) {
	var running *RunningError
	loop := retry.Loop{Clock: cfg.Clock, Log: cfg.Log, Longest: longestPause, Transient: func(err error) bool {
		return errors.As(err, &running) || kube.IsTransient(err)
	}}
	err = loop.Do(ctx, "wait until no service runs", func() error {
		leases, err = ended(ctx, cfg)
		return err
	})
	if err != nil && ctx.Err() != nil && running != nil {
		return nil, running // what was seen last, whatever the end of ctx broke off
	}
	return leases, err
}

// ended returns the Leases of the services, or a *RunningError.
func ended(ctx context.Context, cfg Config) ([]client.Object, error) {
	pods, leases := &corev1.PodList{}, &coordinationv1.LeaseList{}
	here := client.InNamespace(cfg.Namespace)
	if err := cfg.Client.List(ctx, pods, here, client.MatchingLabels{"app.kubernetes.io/part-of": "holdfast"}); err != nil {
		return nil, fmt.Errorf("list the Pods of %s: %w", cfg.Namespace, err)
	}
	// After the Pods: a Lease that one of them wrote at its end is among these.
	if err := cfg.Client.List(ctx, leases, here); err != nil {
		return nil, fmt.Errorf("list the Leases of %s: %w", cfg.Namespace, err)
	}
	var running []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !over && slices.Contains(cfg.Services, pod.Labels["app.kubernetes.io/component"]) {
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
		if held(lease, cfg.Clock.Now()) {
			running = append(running, nameOf(lease))
		}
	}
	if len(running) > 0 {
		return nil, &RunningError{Running: running}
	}
	return ours, nil
}

// held reports whether a Lease was neither released nor has expired.
func held(lease *coordinationv1.Lease, now time.Time) bool {
	spec := &lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false
	}
	return now.Before(spec.RenewTime.Add(time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second))
}

// remove deletes an object. One that was read is deleted as it was read only: a service that has
// written it since still runs.
func remove(ctx context.Context, c client.Client, object client.Object) error {
	var options []client.DeleteOption
	if version := object.GetResourceVersion(); version != "" {
		options = append(options, client.Preconditions{ResourceVersion: &version})
	}
	return c.Delete(ctx, object, options...)
}

func nameOf(object client.Object) string {
	kind := "Lease"
	switch object.(type) {
	case *corev1.ConfigMap:
		kind = "ConfigMap"
	case *corev1.Secret:
		kind = "Secret"
	}
	return kind + "/" + object.GetName()
}
