package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/remove"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

// itemActions returns what runs the delete item actions of plugins; nil when none is registered, so
// that nothing is read.
func (a *App) itemActions(host *pluginhost.Host, registry prometheus.Registerer) remove.Actions {
	if !host.MayServe(pluginhost.KindDeleteItemAction) {
		return nil
	}
	return &itemaction.Runner{
		Open:    func(ctx context.Context, log *slog.Logger) itemaction.Session { return host.Open(ctx, log) },
		Unknown: func() []error { return unknownBinaries(host) },
		Discover: func(ctx context.Context) (selection.Resolver, error) {
			return resource.Discover(ctx, a.runtime.RestConfig())
		},
		Log: a.config.Log, Metrics: itemaction.NewMetrics(registry),
		Plugins: newPluginLimit(a.config.Concurrency),
	}
}

// newPluginLimit leaves one place to other deletions while a plugin hangs, where the process has more than one.
func newPluginLimit(concurrency int) *itemaction.PluginLimit {
	return &itemaction.PluginLimit{Deletions: max(concurrency-1, 1)}
}

// noPlugins is a session with built-in actions alone.
type noPlugins struct{ actions []action.DeleteItem }

// DeleteItems implements itemaction.Session.
func (n noPlugins) DeleteItems() []action.DeleteItem { return n.actions }

// Close implements itemaction.Session.
func (noPlugins) Close() {}

// csiRemoval returns what removes CSI snapshots.
func (a *App) csiRemoval() (csisnapshot.API, remove.Actions) {
	api := csisnapshot.API{Reader: a.clusterReader(), Client: a.clusterClient(), Clock: a.config.Clock, Log: a.config.Log}
	return api, &itemaction.Runner{
		Open: func(context.Context, *slog.Logger) itemaction.Session { return noPlugins{api.DeleteActions()} },
		Discover: func(ctx context.Context) (selection.Resolver, error) {
			return resource.Discover(ctx, a.runtime.RestConfig())
		},
		Log: a.config.Log,
	}
}

// snapshotRemover returns what deletes native snapshots.
func (a *App) snapshotRemover(host *pluginhost.Host) remove.Snapshots {
	return &snapshots.Remover{Log: a.config.Log, Plugins: newPluginLimit(a.config.Concurrency), Open: func(ctx context.Context, log *slog.Logger) (snapshots.Locations, func()) {
		session := host.Open(ctx, log)
		return &nativesnapshot.Opener{
			Reader: a.clusterReader(), Namespace: a.config.Options.Namespace, Session: session, WorkDir: a.runtime.WorkDir(),
		}, session.Close
	}}
}

// unknownBinaries returns why it is not known what some binaries register.
func unknownBinaries(host *pluginhost.Host) []error {
	var all []error
	for _, f := range host.UnlistedBinaries() {
		all = append(all, f)
	}
	return all
}
