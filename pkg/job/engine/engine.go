package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

const (
	// Period is how often a job that no process works on is looked at, and announced.
	Period = 15 * time.Second
	// Overdue is how long a job may wait for the effect of its hint: the queue may hold one that it
	// never delivers, and then refuses every other.
	Overdue = 2 * Period
	// starting is the pause before the next attempt while this instance has no Lease.
	starting = 200 * time.Millisecond
)

// Instance is this process as a holder of claims; claim.Instance is one.
type Instance interface {
	// Ready reports that claims may be taken.
	Ready() bool
	// Acquire returns the claim to write; a *claim.HeldError while a live instance holds the object.
	// Once it has returned others detect within the timeout that this instance died.
	Acquire(ctx context.Context, obj metav1.Object) (claim.Claim, error)
	// Held returns nil if the object may be claimed; a *claim.HeldError while a live instance holds it.
	Held(obj metav1.Object) error
	// Guard returns a context that ends with the claim that the object carries, and shows
	// each state of the object to seen.
	Guard(ctx context.Context, obj client.Object, seen func(client.Object)) (context.Context, context.CancelFunc)
	// Confirm fails with claim.ErrLost unless the claim that the object carries holds at this
	// moment.
	Confirm(ctx context.Context, obj client.Object) error
	// Expired delivers the names of instances that died.
	Expired() <-chan string
}

// Bus carries hints; messaging.Client is one.
type Bus interface {
	Publish(ctx context.Context, what messaging.What, hint *workv1.Hint) error
	Consume(ctx context.Context, what messaging.What, cfg messaging.ConsumerConfig, handle messaging.Handler) error
}

// Events records events about an object, without waiting for anything; an
// events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what an Engine works with. Every field is required unless its comment states otherwise.
type Config[T client.Object] struct {
	// Service names the controller and begins the names of the failpoints, such as "deletion".
	Service string
	// ObjectKind is the kind as hints have it, such as "Backup".
	ObjectKind string
	Kind       Kind[T]
	New        func() T
	NewList    func() client.ObjectList
	// Reader reads from the API server, Cached may be a cache.
	Reader    client.Reader
	Cached    client.Reader
	Client    client.Client
	Namespace string
	Instance  Instance
	Bus       Bus
	Work      messaging.What
	// Concurrency is how many jobs this process works on at once, however it found them.
	Concurrency int
	// Grace is how long a job may continue once the process began to stop; 0 is not at all.
	Grace time.Duration
	// Cancellable: requests to cancel on the object concern this kind.
	Cancellable bool
	// Events gets the jobs that wait for a place; nil takes none.
	Events Events
	// Metrics takes the metrics of the jobs of this process; nil takes none.
	Metrics prometheus.Registerer
	// Tracer makes the spans of attempts; nil makes none.
	Tracer trace.Tracer
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Engine runs the jobs of one kind. Safe for concurrent use.
type Engine[T client.Object] struct {
	cfg     Config[T]
	places  *semaphore.Weighted // one for each job that this process may work on
	queue   *workqueue
	tracker *jobTracker
	metrics *engineMetrics
	group   sync.WaitGroup // jobs that outlive the handler of their hint
}

// New returns an Engine. Setup and Serve bring it to life. Metrics of the same kind that are
// registered already are a panic.
func New[T client.Object](cfg Config[T]) *Engine[T] {
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	places := semaphore.NewWeighted(int64(max(cfg.Concurrency, 1)))
	e := &Engine[T]{cfg: cfg, places: places, queue: newWorkqueue(cfg.Clock), tracker: newTracker(cfg.Clock)}
	e.metrics = newMetrics(cfg.Metrics, cfg.ObjectKind, e.tracker.countActive)
	return e
}

// Setup adds the controller to the manager.
func (e *Engine[T]) Setup(mgr ctrl.Manager) error {
	mine := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetNamespace() == e.cfg.Namespace })
	err := ctrl.NewControllerManagedBy(mgr).Named(e.cfg.Service).For(e.cfg.New(), builder.WithPredicates(mine)).Complete(e)
	if err != nil {
		return fmt.Errorf("set up the controller of %s: %w", e.cfg.Service, err)
	}
	return nil
}

// Serve works on jobs until ctx ends, then waits for those under way, and returns nil. It begins as
// soon as the instance may claim.
func (e *Engine[T]) Serve(ctx context.Context) error {
	if !awaitReady(ctx, e.cfg.Instance, e.cfg.Clock) {
		return nil
	}
	var group sync.WaitGroup
	defer e.group.Wait()
	defer group.Wait()
	group.Go(func() { e.runQueuedJobs(ctx) })
	group.Go(func() { e.takeOverJobs(ctx) })
	return e.cfg.Bus.Consume(ctx, e.cfg.Work, messaging.ConsumerConfig{Concurrency: e.cfg.Concurrency}, e.Handle)
}

// awaitReady returns when claims may be taken, false when ctx ends first.
func awaitReady(ctx context.Context, instance Instance, c clock.WithTicker) bool {
	ticker := c.NewTicker(starting / 10)
	defer ticker.Stop()
	for !instance.Ready() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
	}
	return true
}

// Active reports whether this process works on the job now.
func (e *Engine[T]) Active(obj metav1.Object) bool { return e.tracker.isActive(obj.GetUID()) }

// retryLoop is how calls to the API server are repeated.
func (e *Engine[T]) retryLoop() retry.Loop { return retry.Loop{Clock: e.cfg.Clock, Log: e.cfg.Log} }
