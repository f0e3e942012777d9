package up

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/service"
	monitor "github.com/holdfast-io/holdfast/services/async-operation-monitor/app"
	backuprunner "github.com/holdfast-io/holdfast/services/backup-runner/app"
	deletion "github.com/holdfast-io/holdfast/services/deletion/app"
	manifestindexer "github.com/holdfast-io/holdfast/services/manifest-indexer/app"
	queuescheduler "github.com/holdfast-io/holdfast/services/queue-scheduler/app"
	restorerunner "github.com/holdfast-io/holdfast/services/restore-runner/app"
	volumemover "github.com/holdfast-io/holdfast/services/volume-mover/app"
)

// serviceKinds are the services. Each is built by the same code as its own binary. bind leads the flags of
// its binary to its configuration.
func serviceKinds() []serviceKind {
	var (
		queue    queuescheduler.Config
		poll     monitor.Config
		backup   backuprunner.Config
		restore  restorerunner.Config
		manifest manifestindexer.Config
		remove   deletion.Config
		mover    volumemover.Config
	)
	return []serviceKind{
		{name: queuescheduler.Name, ports: queuescheduler.Ports(), bind: queue.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := queue
			c.Base = base
			return queuescheduler.New(ctx, c)
		}},
		{name: monitor.Name, ports: monitor.Ports(), bind: poll.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := poll
			c.Base = base
			return monitor.New(ctx, c)
		}},
		{name: backuprunner.Name, ports: backuprunner.Ports, runner: true, bind: backup.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := backup
			c.Base = base
			return backuprunner.New(ctx, c)
		}},
		{name: restorerunner.Name, ports: service.Ports{GRPC: restorerunner.GRPCPort, HTTP: restorerunner.HTTPPort}, runner: true, bind: restore.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := restore
			c.Base = base
			return restorerunner.New(ctx, c)
		}},
		{name: manifestindexer.Name, ports: manifestindexer.Ports(), bind: manifest.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := manifest
			c.Base = base
			return manifestindexer.New(ctx, c)
		}},
		{name: deletion.Name, ports: deletion.Ports(), bind: remove.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := remove
			c.Base = base
			return deletion.New(ctx, c)
		}},
		{name: volumemover.Name, ports: volumemover.Ports(), bind: mover.BindFlags, build: func(ctx context.Context, base service.Base) (service.Runner, error) {
			c := mover
			c.Base = base
			return volumemover.New(ctx, c)
		}},
	}
}

// Ports returns the ports of the services by their names: where `up` has them on 127.0.0.1 unless
// --free-ports is given, and where a forwarded port usually is.
func Ports() map[string]service.Ports {
	ports := map[string]service.Ports{}
	for _, k := range serviceKinds() {
		ports[k.name] = k.ports
	}
	return ports
}
