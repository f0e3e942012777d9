package pluginhost

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// NewForService returns the service's one host, for all its jobs. Without --plugin-dir no process is started
// and no session has a plugin. What cannot be used in the directory is logged as a warning and left
// out; an error means that the directory cannot be read, or that ctx ended. metrics takes the times of
// calls, nil none.
func NewForService(ctx context.Context, base service.Base, flags Flags, metrics prometheus.Registerer) (*Host, error) {
	if err := flags.Validate(); err != nil {
		return nil, err
	}
	o := base.Options
	host, err := New(ctx, Config{
		Dir: o.PluginDir, Namespace: o.Namespace, Kubeconfig: o.Kubeconfig, LogLevel: o.LogLevel, Features: o.Features,
		Environ: os.Environ(), AllowEnv: flags.Env, Log: base.Log, Clock: base.Clock, Limits: flags.Limits(), Metrics: metrics,
	})
	if err != nil {
		return nil, err
	}
	for _, failure := range host.Failures() {
		base.Log.Warn("Failed to use plugins of a binary; running without them", "path", failure.Path, "error", failure.Err)
	}
	for _, p := range host.Plugins() {
		base.Log.Info("Found plugin", "kind", p.Kind, "name", p.Name, "path", p.Path)
	}
	return host, nil
}

// StartForService connects a service that has plugins: its runtime, which also retries binaries whose plugins
// could not be listed, and its host. The caller closes the runtime, also after an error of its own.
func StartForService(ctx context.Context, base service.Base, flags Flags) (*service.Runtime, *Host, error) {
	rt, err := service.New(ctx, base)
	if err != nil {
		return nil, nil, err
	}
	host, err := NewForService(ctx, base, flags, rt.Registry())
	if err != nil {
		rt.Close()
		return nil, nil, fmt.Errorf("service %s: --plugin-dir: %w", base.Name, err)
	}
	rt.Go("plugin binaries", host.Run)
	return rt, host, nil
}

// ServiceLog returns the logger for a job's session: what its plugins log goes to note from the service's
// own level on, see [pluginhost.JobLog].
func ServiceLog(base service.Base, note func(joblog.Entry)) *slog.Logger {
	level, err := telemetry.ParseLevel(base.Options.LogLevel)
	if err != nil {
		level = slog.LevelInfo // options that were not validated
	}
	return JobLog(level, note)
}
