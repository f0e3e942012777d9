package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
	"github.com/holdfast-io/holdfast/services/deletion/internal/remove"
	"github.com/holdfast-io/holdfast/services/deletion/internal/snapshots"
)

// actions returns what runs the delete item actions of plugins; nil when none is registered, so that nothing is read.
func (a *App) actions(host *pluginhost.Host) remove.Actions {
	unknown := unknownBinaries(host)
	registered := slices.ContainsFunc(host.Plugins(), func(p pluginhost.Registration) bool { return p.Kind == pluginhost.KindDeleteItemAction })
	if !registered && len(unknown) == 0 {
		return nil
	}
	return &itemaction.Runner{
		Open:    func(ctx context.Context, log *slog.Logger) itemaction.Session { return host.Open(ctx, log) },
		Unknown: unknown,
		Discover: func(ctx context.Context) (selection.Resolver, error) {
			return resource.Discover(ctx, a.runtime.RestConfig())
		},
		Clock: a.config.Clock, Log: a.config.Log, Metrics: itemaction.NewMetrics(a.runtime.Registry()),
	}
}

// snapshots returns what deletes native snapshots.
func (a *App) snapshots(host *pluginhost.Host) remove.Snapshots {
	return &snapshots.Remover{Log: a.config.Log, Open: func(ctx context.Context, log *slog.Logger) (snapshots.Locations, func()) {
		session := host.Open(ctx, log)
		return &nativesnapshot.Opener{
			Reader: a.reader(), Namespace: a.config.Options.Namespace, Session: session, WorkDir: a.runtime.WorkDir(),
		}, session.Close
	}}
}

// unknownBinaries returns the binaries of which it is not known what they register. One registration that is left out of a
// list is no such case.
func unknownBinaries(host *pluginhost.Host) []error {
	var unknown []error
	for _, f := range host.Failures() {
		listed := slices.ContainsFunc(host.Plugins(), func(p pluginhost.Registration) bool { return p.Path == f.Path })
		if !listed || !errors.Is(f.Err, pluginhost.ErrMalformed) {
			unknown = append(unknown, f)
		}
	}
	return unknown
}
