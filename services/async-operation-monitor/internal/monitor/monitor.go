// Package monitor follows jobs that wait for operations until all have ended: Waiting* becomes
// Finalizing*.
//
// A job is polled for its hint, which is delivered again after the pause between two polls. A job
// whose hint is not seen, as it was lost or the bus is away, is found in the cache and polled
// without. Nothing keeps several replicas from polling the same job: what they record decides.
//
// No message is sent when a job moves on: the runners watch the phase, and publish the hint for
// what is to be finalized themselves.
package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// Concurrency is how many jobs this process polls at once by their hints, and as many of a kind
// without.
const Concurrency = 8

// Files finds the store of a job; server.Source is one.
type Files interface {
	// Store opens the location of a Backup or Restore. The caller closes it.
	Store(ctx context.Context, job client.Object) (objectstore.Store, error)
}

// Bus carries hints; messaging.Client is one.
type Bus interface {
	Publish(ctx context.Context, what messaging.What, hint *workv1.Hint) error
	Consume(ctx context.Context, what messaging.What, cfg messaging.ConsumerConfig, handle messaging.Handler) error
}

// Events records events about an object; an events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Config is what a Monitor works with. Every field is required.
type Config struct {
	Reader    client.Reader // uncached
	Client    client.Client // reads may come from a cache
	Namespace string
	Files     Files
	Poller    *poll.Poller
	Bus       Bus
	Events    Events
	// Frequency is the pause between two polls of a job.
	Frequency time.Duration
	Clock     clock.PassiveClock
	Log       *slog.Logger
}

// Monitor polls the jobs that wait. Safe for concurrent use.
type Monitor struct {
	Config
	jobs *jobTable
}

// New returns a Monitor. Setup and Serve bring it to life.
func New(cfg Config) *Monitor {
	return &Monitor{Config: cfg, jobs: newJobs(cfg.Clock)}
}

// Setup adds the controllers to the manager.
func (m *Monitor) Setup(mgr ctrl.Manager) error {
	for name, c := range map[string]struct {
		kind client.Object
		do   reconcile.Func
	}{
		"backup":  {&velerov1.Backup{}, m.Backup},
		"restore": {&velerov1.Restore{}, m.Restore},
	} {
		err := ctrl.NewControllerManagedBy(mgr).Named("async-operation-monitor-" + name).For(c.kind).
			WithOptions(controller.Options{MaxConcurrentReconciles: Concurrency}).Complete(c.do)
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return nil
}

// Serve polls jobs by their hints until ctx ends, and returns nil.
func (m *Monitor) Serve(ctx context.Context) error {
	return m.Bus.Consume(ctx, messaging.WorkOperationPoll, messaging.ConsumerConfig{Concurrency: Concurrency}, m.Handle)
}

// Open returns how many operations this process follows that have not ended.
func (m *Monitor) Open() int { return m.jobs.countOpen() }

// States returns the states of the operations of a job in the order of its list, nil where this
// process does not follow it.
func (m *Monitor) States(kind, name string, uid types.UID) []operation.State {
	return m.jobs.operationStates(kind+"/"+name, uid)
}

// Wake polls a job now, unless a poll of it is under way in this process. A failure is logged: the
// job is polled again in any case.
func (m *Monitor) Wake(ctx context.Context, kind, name string, uid types.UID) {
	_, err := m.runGuarded(ctx, func() (time.Duration, error) {
		if kind == restores.name {
			return pollJob(ctx, m, restores, name, string(uid))
		}
		return pollJob(ctx, m, backups, name, string(uid))
	})
	if err != nil {
		m.Log.WarnContext(ctx, "Failed to poll the operations of a job; will retry", "kind", kind, "name", name, "error", err)
	}
}

// Backup reconciles one Backup.
func (m *Monitor) Backup(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return observeJob(ctx, m, backups, req)
}

// Restore reconciles one Restore.
func (m *Monitor) Restore(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return observeJob(ctx, m, restores, req)
}

// Handle polls the job of a hint once. The hint comes again until the job waits no more.
func (m *Monitor) Handle(ctx context.Context, hint *workv1.Hint) messaging.Outcome {
	if hint.GetNamespace() != m.Namespace {
		return messaging.DeadLetter(fmt.Errorf("not a job of namespace %s", m.Namespace))
	}
	switch hint.GetKind() {
	case backups.name:
		return handleHint(ctx, m, backups, hint)
	case restores.name:
		return handleHint(ctx, m, restores, hint)
	}
	return messaging.DeadLetter(fmt.Errorf("%s is no kind with operations", hint.GetKind()))
}

func handleHint[T client.Object](ctx context.Context, m *Monitor, k *jobKind[T], hint *workv1.Hint) messaging.Outcome {
	again, err := m.runGuarded(ctx, func() (time.Duration, error) { return pollJob(ctx, m, k, hint.GetName(), hint.GetUid()) })
	switch {
	case err != nil:
		return messaging.Retry(m.Frequency, err)
	case again > 0:
		return messaging.RetryAfter(again)
	}
	return messaging.Done()
}
