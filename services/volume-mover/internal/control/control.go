// Package control serves the requests to move data of volumes (PodVolumeBackups, PodVolumeRestores, DataUploads
// and DataDownloads): it starts a mover Pod for each, follows it, and writes down what became of the data. It
// also has movers remove snapshots, and maintain repositories.
//
// All state is in the requests and the Pods. Each step is decided from both as the API server has them and
// can be taken again, so that a successor goes on where a controller was killed.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
)

// concurrency is how many requests of a kind are looked at at once.
const concurrency = 4

// Logs reads what mover Pods print.
type Logs interface {
	// TailLog returns the last lines of the log of a mover Pod.
	TailLog(ctx context.Context, pod *corev1.Pod) ([]byte, error)
}

// Events records events about an object; an events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what a Controller works with. Every field is required.
type Config struct {
	Reader client.Reader // uncached
	Client client.Client // reads may come from a cache
	Logs   Logs
	// Commands runs what reads files of backups.
	Commands Commands
	Events   Events
	// Movers are the settings of mover Pods.
	Movers moverpod.Settings
	// KubeletRoot is the kubelet's directory on each node.
	KubeletRoot string
	// PerNode and Total are how many movers run at once on a node and in all.
	PerNode, Total int
	// PrepareTimeout is how long a mover Pod may take to start.
	PrepareTimeout time.Duration
	// MaintenanceInterval is how often a repository is maintained whose BackupRepository does not say so, and
	// FullMaintenanceInterval how often in full. 0: never.
	MaintenanceInterval, FullMaintenanceInterval time.Duration

	Metrics *Metrics
	Clock   clock.WithTicker
	Log     *slog.Logger
}

// Controller serves requests. Only one of them may run at a time, since it counts the movers.
type Controller struct {
	Config
	// fileCalls has an element for each call that reads files.
	fileCalls chan struct{}
	slots     *slotTable
	snapshots csisnapshot.API
	// woken are requests of each kind that may go on.
	woken map[string]chan event.GenericEvent
}

// New returns a Controller.
func New(c Config) *Controller {
	woken := map[string]chan event.GenericEvent{}
	for _, kind := range requestKinds() {
		woken[viewOf(kind).kind] = make(chan event.GenericEvent, c.Total)
	}
	return &Controller{
		Config: c, slots: newSlots(c.PerNode, c.Total), fileCalls: make(chan struct{}, maxFiles), woken: woken,
		snapshots: csisnapshot.API{Reader: c.Reader, Client: c.Client, Clock: c.Clock, Log: c.Log},
	}
}

// releaseSlot gives the slot of a request back, and wakes the one that waits for it. If the channel is
// full, that request is reconciled after waitInterval.
func (c *Controller) releaseSlot(v view) {
	next := c.slots.freeSlot(v.requestKey())
	if next == nil {
		return
	}
	select {
	case c.woken[viewOf(next).kind] <- event.GenericEvent{Object: next}:
	default:
	}
}

// Run serves the requests in the cache until ctx ends, and returns nil.
func (c *Controller) Run(ctx context.Context, objects cache.Cache) error {
	if !objects.WaitForCacheSync(ctx) {
		return nil
	}
	if err := c.countMovers(ctx); err != nil {
		return err
	}
	if err := c.RemoveOrphans(ctx); err != nil {
		c.Log.WarnContext(ctx, "Failed to remove VolumeSnapshotContents of DataUploads that are gone; will retry when the service starts", "error", err)
	}
	if err := c.ensurePassword(ctx); err != nil {
		c.Log.WarnContext(ctx, "Failed to ensure the password of the repositories; will retry with the first request", "error", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	kinds := requestKinds()
	ended := make(chan error)
	for _, kind := range kinds {
		go func() { ended <- c.serveKind(ctx, objects, kind) }()
	}
	first := <-ended
	cancel(first)
	for range len(kinds) - 1 {
		first = errors.Join(first, <-ended)
	}
	return first
}

// countMovers counts the movers of requests that were accepted before.
func (c *Controller) countMovers(ctx context.Context) error {
	lists := []client.ObjectList{&velerov1.PodVolumeBackupList{}, &velerov1.PodVolumeRestoreList{}, &v2alpha1.DataUploadList{}, &v2alpha1.DataDownloadList{}}
	for _, list := range lists {
		if err := c.Client.List(ctx, list, client.InNamespace(c.Movers.Namespace)); err != nil {
			return fmt.Errorf("list requests: %w", err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if v := viewOf(o.(client.Object)); !v.foreign && !v.isNew() && !v.isFinal() {
				c.slots.holdSlot(v.requestKey(), v.moverNode())
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list requests: %w", err)
		}
	}
	return nil
}

// serveKind serves the requests of one kind until ctx ends.
func (c *Controller) serveKind(ctx context.Context, objects cache.Cache, kind client.Object) error {
	name := viewOf(kind).kind
	served, err := controller.NewUnmanaged("volume-mover-"+name, controller.Options{
		MaxConcurrentReconciles: concurrency, SkipNameValidation: ptr.To(true), Reconciler: reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			return c.Reconcile(ctx, kind, req.NamespacedName)
		}),
	})
	if err != nil {
		return fmt.Errorf("controller of %s: %w", name, err)
	}
	ofPod := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, pod client.Object) []reconcile.Request {
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == name {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: owner.Name}}}
		}
		return nil
	})
	err = errors.Join(
		served.Watch(source.Kind(objects, kind, &handler.EnqueueRequestForObject{})),
		served.Watch(source.Kind[client.Object](objects, &corev1.Pod{}, ofPod)),
		served.Watch(source.Channel(c.woken[name], &handler.EnqueueRequestForObject{})),
	)
	if err != nil {
		return fmt.Errorf("controller of %s: %w", name, err)
	}
	return served.Start(ctx)
}
