// Package cleanup removes what the services make for themselves in the server namespace: their
// Leases, the ledger and the key that signs links. An uninstallation does not remove these.
package cleanup

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
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
// what the services made, and returns the names of it as kind/name. When ctx ends before that, the
// error wraps *RunningError.
func Run(ctx context.Context, cfg Config) (removed []string, err error) {
	w := &serviceWatcher{Config: cfg, leases: map[string]leaseSighting{}}
	objects, err := w.awaitStopped(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing is removed: %w", err)
	}
	objects = append(objects,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: ledger.Name}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cfg.Namespace, Name: artifact.SecretName}})
	loop := retry.Loop{Clock: cfg.Clock, Log: cfg.Log, Transient: func(err error) bool { return kube.IsTransient(err) && !apierrors.IsConflict(err) }}
	for _, object := range objects {
		name := nameOf(object)
		err := loop.Do(ctx, "remove "+name, func() error { return cfg.Client.Delete(ctx, object, preconditionsOf(object)...) })
		switch {
		case err == nil:
			removed = append(removed, name)
		case !apierrors.IsNotFound(err):
			return removed, fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return removed, nil
}

// preconditionsOf are the options that delete a Lease only as it was read: a service that has written it since
// runs.
func preconditionsOf(object client.Object) []client.DeleteOption {
	if version := object.GetResourceVersion(); version != "" {
		return []client.DeleteOption{client.Preconditions{ResourceVersion: &version}}
	}
	return nil
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
