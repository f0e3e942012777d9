// Package app builds the service volume-mover, which starts a mover Pod for each request to move
// the data of a volume, writes down what became of it, and has movers remove snapshots and maintain repositories.
//
// One replica at a time does this (a duty). All state is in the requests and the Pods, so that the next
// one goes on where it stands.
package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/service"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/control"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// logTail is how many lines of a mover's log are read, and logBytes how much of it. Its log
// has reports and log lines.
const (
	logTail  = 20
	logBytes = 1 << 20
)

// App is the service, built and not yet started.
type App struct{ runtime *service.Runtime }

// New connects the service and registers what it serves.
func New(ctx context.Context, c Config) (*App, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	rt, err := service.New(ctx, c.Base)
	if err != nil {
		return nil, err
	}
	if err := addController(rt, &c); err != nil {
		rt.Close()
		return nil, fmt.Errorf("service %s: %w", c.Name, err)
	}
	return &App{runtime: rt}, nil
}

func addController(rt *service.Runtime, c *Config) error {
	resources, err := c.parseResources()
	if err != nil {
		return err
	}
	authorities, err := c.parseAuthorities()
	if err != nil {
		return err
	}
	pods, err := kubernetes.NewForConfig(rt.RestConfig())
	if err != nil {
		return fmt.Errorf("client of Pods: %w", err)
	}
	commands, err := podexec.New(rt.RestConfig())
	if err != nil {
		return err
	}
	counts, err := control.NewMetrics(rt.Registry())
	if err != nil {
		return err
	}
	mgr := rt.Manager()
	served := control.New(control.Config{
		Reader: mgr.GetAPIReader(), Client: mgr.GetClient(), Logs: podLogs{pods}, Commands: commands, Events: mgr.GetEventRecorder(Name),
		Movers: moverpod.Settings{
			Namespace: c.Options.Namespace, Image: c.MoverImage, PullPolicy: corev1.PullPolicy(c.MoverPullPolicy), ServiceAccount: c.MoverServiceAccount,
			Resources: resources, Environment: c.readEnvironment(), Authorities: authorities,
		},
		KubeletRoot: c.KubeletRoot, PerNode: c.MoversPerNode, Total: c.Movers, PrepareTimeout: c.PrepareTimeout,
		MaintenanceInterval: c.MaintenanceInterval, FullMaintenanceInterval: c.FullMaintenanceInterval,
		Metrics: counts, Clock: c.Clock, Log: c.Log,
	})
	volumev1.RegisterVolumeServiceServer(rt.GRPC(), &control.Server{Controller: served})
	rt.GoLeading(c.DutyTimeout, service.Duties{"movers": func(ctx context.Context) error {
		if c.VolumeMover == MoverVelero { // VolumeService removes snapshots with either mover; its clients find this instance by the Lease
			return served.PrepareRepositories(ctx)
		}
		return served.Run(ctx, mgr.GetCache())
	}, "maintenance": served.MaintainRepositories})
	return nil
}

// podLogs reads the logs of Pods.
type podLogs struct{ pods kubernetes.Interface }

// TailLog implements control.Logs.
func (l podLogs) TailLog(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	return l.pods.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: moverpod.Container, TailLines: ptr.To(int64(logTail)), LimitBytes: ptr.To(int64(logBytes)),
	}).DoRaw(ctx)
}

// Run implements service.Runner.
func (a *App) Run(ctx context.Context) error { return a.runtime.Run(ctx) }

// Runtime gives access to the addresses the service listens on.
func (a *App) Runtime() *service.Runtime { return a.runtime }
