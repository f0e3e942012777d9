package kube

import (
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// libraryLogger is set once per process: controller-runtime logs what belongs to no manager through
// one global logger.
var libraryLogger sync.Once

// NewManager returns a manager whose cache holds namespaced objects of one namespace only, as
// transform leaves them; nil drops their managedFields. It serves no metrics and no health endpoint (the service skeleton does) and
// several managers may run in one process. It starts nothing and reads only discovery, lazily.
func NewManager(cfg *rest.Config, namespace string, transform toolscache.TransformFunc, log *slog.Logger) (ctrl.Manager, error) {
	if transform == nil {
		transform = cache.TransformStripManagedFields()
	}
	logger := telemetry.Library(log)
	libraryLogger.Do(func() { ctrl.SetLogger(logger) })
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 Scheme(),
		Logger:                 logger,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		PprofBindAddress:       "0",
		Controller:             ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			DefaultTransform:  transform,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create manager for namespace %q: %w", namespace, telemetry.RedactError(err))
	}
	return mgr, nil
}
