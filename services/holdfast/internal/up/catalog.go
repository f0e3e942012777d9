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
)

// kinds are the services. Each is built by the same code as its own binary, with
// the defaults of its own flags: the zero value of its configuration.
func kinds() []kind {
	return []kind{
		{name: queuescheduler.Name, ports: queuescheduler.Ports(), build: func(ctx context.Context, base service.Base, _ []string) (service.Runner, error) {
			return queuescheduler.New(ctx, queuescheduler.Config{Base: base})
		}},
		{name: monitor.Name, ports: monitor.Ports(), build: func(ctx context.Context, base service.Base, _ []string) (service.Runner, error) {
			return monitor.New(ctx, monitor.Config{Base: base})
		}},
		{name: backuprunner.Name, ports: backuprunner.Ports, runner: true, build: func(ctx context.Context, base service.Base, gone []string) (service.Runner, error) {
			return backuprunner.New(ctx, backuprunner.Config{Base: base, Predecessors: gone})
		}},
		{name: restorerunner.Name, ports: service.Ports{GRPC: restorerunner.GRPCPort, HTTP: restorerunner.HTTPPort}, runner: true, build: func(ctx context.Context, base service.Base, gone []string) (service.Runner, error) {
			return restorerunner.New(ctx, restorerunner.Config{Base: base, Predecessors: gone})
		}},
		{name: manifestindexer.Name, ports: manifestindexer.Ports(), build: func(ctx context.Context, base service.Base, _ []string) (service.Runner, error) {
			return manifestindexer.New(ctx, manifestindexer.Config{Base: base})
		}},
		{name: deletion.Name, ports: deletion.Ports(), build: func(ctx context.Context, base service.Base, gone []string) (service.Runner, error) {
			return deletion.New(ctx, deletion.Config{Base: base, Predecessors: gone})
		}},
	}
}
