// Package app builds the service manifest-indexer.
//
// Any replica answers DownloadRequests, ServerStatusRequests, artifact links and RPCs, and has a search
// index of its own; validation of locations and the search for backups are duties of one replica at a
// time.
package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore/artifact"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/backupsync"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/download"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/locations"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/search"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/server"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/verification"
)

// concurrency is how many requests of a kind are answered at once.
const concurrency = 8

// App is the service, built and not yet started.
type App struct {
	config  Config
	runtime *service.Runtime
	opener  *location.Opener
	plugins func() []velerov1.PluginInfo // all that is registered

	validator *locations.Validator
	syncer    *backupsync.Syncer
	verifier  *verification.Verifier
	index     *search.Indexer
	endpoint  *download.Endpoint
}

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	rt, host, err := pluginhost.StartForService(ctx, c.Base, c.Plugins)
	if err != nil {
		return nil, err
	}
	a := &App{config: c, runtime: rt, plugins: func() []velerov1.PluginInfo { return pluginInfos(host.Plugins()) }, opener: location.New(rt.Manager().GetAPIReader(), c.Options.Namespace, location.WithPlugins(host, c.Log, rt.WorkDir()), location.WithMetrics(rt.Registry(), c.Clock))}
	err = a.openIndex(ctx)
	if err == nil {
		a.buildParts()
		err = a.openArtifacts(ctx)
	}
	if err == nil {
		err = a.addControllers()
	}
	if err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	a.runtime.GoLeading(a.config.DutyTimeout, service.Duties{"location-validation": a.validator.Run, "backup-sync": a.syncer.Run, "backup-verification": a.verifier.Run})
	return a, nil
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }

func (a *App) clusterReader() client.Reader { return a.runtime.Manager().GetAPIReader() }
func (a *App) clusterClient() client.Client { return a.runtime.Manager().GetClient() }

func (a *App) buildParts() {
	c, namespace := a.config, a.config.Options.Namespace
	a.validator = locations.New(locations.Config{
		Reader: a.clusterReader(), Cached: a.clusterClient(), Client: a.clusterClient(), Namespace: namespace, Checker: a.opener, Clock: c.Clock, Log: c.Log,
		Frequency: max(c.ValidationFrequency, 0), Default: c.DefaultLocation, Events: a.runtime.Manager().GetEventRecorder(Name), Metrics: a.runtime.Registry(),
	})
	a.syncer = backupsync.New(backupsync.Config{
		Reader: a.clusterReader(), Cached: a.clusterClient(), Client: a.clusterClient(), Namespace: namespace, Opener: a.opener, Clock: c.Clock, Log: c.Log, Period: max(c.BackupSyncPeriod, 0),
		Events: a.runtime.Manager().GetEventRecorder(Name),
	})
	rebuilder := server.NewRebuilder(server.RebuilderConfig{Reader: a.clusterReader(), Namespace: namespace, Opener: a.opener, WorkDir: a.runtime.WorkDir(), Log: c.Log, Clock: c.Clock})
	a.runtime.Go("manifests", rebuilder.Run)
	manifests := &server.Server{Reader: a.clusterReader(), Namespace: namespace, Opener: a.opener, Rebuilder: rebuilder, Index: a.index, Clock: c.Clock, Graphs: semaphore.NewWeighted(1)}
	manifestv1.RegisterManifestServiceServer(a.runtime.GRPC(), manifests)
	a.verifier = verification.New(verification.Config{
		Reader: a.clusterReader(), Client: a.clusterClient(), Namespace: namespace, Verify: manifests.Verify, Clock: c.Clock, Log: c.Log,
		Events: a.runtime.Manager().GetEventRecorder(Name), Metrics: a.runtime.Registry(), Period: c.VerifyPeriod,
	})
}

// openIndex makes the search index of this replica, which is empty after each start.
func (a *App) openIndex(ctx context.Context) error {
	c := a.config
	database, err := search.OpenDatabase(ctx, filepath.Join(a.runtime.WorkDir(), "search.db"))
	if err != nil {
		return err
	}
	a.index = search.NewIndexer(search.Config{Reader: a.clusterReader(), Cached: a.clusterClient(), Namespace: c.Options.Namespace, Opener: a.opener, Clock: c.Clock, Log: c.Log}, database)
	a.runtime.Go("search index", func(ctx context.Context) error {
		a.runtime.Manager().GetCache().WaitForCacheSync(ctx) // else the first pass fails
		return a.index.Run(ctx)
	})
	return nil
}

// openArtifacts opens the endpoint of artifacts, which is not that of metrics: other machines may need
// the one and not the other.
func (a *App) openArtifacts(ctx context.Context) error {
	c, mux := a.config, http.NewServeMux()
	base, err := a.runtime.Listen(ctx, "--artifact-address", c.ArtifactAddress, mux)
	if err != nil {
		return err
	}
	if c.ArtifactURL != "" {
		base = c.ArtifactURL
	} else if host, _, err := net.SplitHostPort(c.ArtifactAddress); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		c.Log.Warn("Clients cannot reach artifacts; set --artifact-url", "url", base)
	}
	a.endpoint = download.NewEndpoint(download.EndpointConfig{
		Reader: a.clusterReader(), Client: a.clusterClient(), Namespace: c.Options.Namespace, Base: base, Open: a.opener.OpenName, Clock: c.Clock, Log: c.Log,
	})
	mux.Handle(artifact.PathPrefix, a.endpoint)
	a.runtime.Go("artifact key", a.endpoint.Run)
	a.runtime.ReadyWhen("artifact key", a.endpoint.Ready)
	return nil
}

func (a *App) addControllers() error {
	var passive clock.PassiveClock = a.config.Clock
	wakeIndex := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		a.index.Wake()
		return reconcile.Result{}, nil
	})
	err := ctrl.NewControllerManagedBy(a.runtime.Manager()).Named(Name+"-backup").For(&velerov1.Backup{}, builder.OnlyMetadata).Complete(wakeIndex)
	if err != nil {
		return fmt.Errorf("controller backup: %w", err)
	}
	for name, c := range map[string]struct {
		kind client.Object
		do   reconcile.Reconciler
	}{
		"download-request": {&velerov1.DownloadRequest{}, &download.Reconciler{
			Reader: a.clusterReader(), Client: a.clusterClient(), Locations: a.opener, Linker: a.endpoint, Clock: passive, Log: a.config.Log,
		}},
		"server-status-request": {&velerov1.ServerStatusRequest{}, &server.StatusReconciler{Reader: a.clusterReader(), Client: a.clusterClient(), Clock: passive, Plugins: a.plugins}},
		"location": {&velerov1.BackupStorageLocation{}, reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			a.validator.Wake()
			a.syncer.Wake()
			return reconcile.Result{}, nil
		})},
	} {
		err := ctrl.NewControllerManagedBy(a.runtime.Manager()).Named(Name + "-" + name).For(c.kind).
			WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).Complete(c.do)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return nil
}
