package monitor_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/monitor"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

const (
	namespace = "velero"
	frequency = 10 * time.Second
	grace     = time.Minute
)

// bed is an API server, a bucket, a message bus, plugins, and any number of replicas, in the time
// of a bubble.
type bed struct {
	*testing.T
	api     client.WithWatch
	store   *memstore.Store
	bus     *bus
	plugins *plugins
	events  *events

	mu    sync.Mutex
	wakes []chan struct{} // of the controllers
}

func inBubble(t *testing.T, do func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, store: memstore.New(), bus: newBus(), plugins: &plugins{progress: map[string]action.Progress{}}, events: &events{}}
		b.api = interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(systemNamespace()).Build(), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				defer b.wakeControllers()
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				defer b.wakeControllers()
				return c.Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				defer b.wakeControllers()
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				defer b.wakeControllers()
				return c.Delete(ctx, o, opts...)
			},
		})
		do(b)
	})
}

// systemNamespace identifies the cluster.
func systemNamespace() client.Object {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "cluster-1"}}
}

// wakeControllers wakes the controllers.
func (b *bed) wakeControllers() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wake := range b.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// createJob creates a job of ours that waits, with operations of those IDs.
func (b *bed) createJob(kind, name string, ids ...string) client.Object {
	b.Helper()
	o := b.readObject(kind, name)
	b.sealOperations(kind, o, ids...)
	require.NoError(b, b.api.Create(b.Context(), o))
	return o
}

// sealOperations seals operations of those IDs of a job.
func (b *bed) sealOperations(kind string, o client.Object, ids ...string) {
	b.Helper()
	list := operation.List{Job: operation.Job{Kind: kind, Name: o.GetName(), UID: string(o.GetUID())}, Epoch: 1}
	for _, id := range ids {
		list.Operations = append(list.Operations, operation.Operation{
			Action: "vendor.io/a", ID: id, Created: time.Now(), Item: operation.Resource{Resource: "pods", Namespace: "n", Name: id},
		})
	}
	_, err := operation.Seal(b.Context(), b.store, list)
	require.NoError(b, err)
}

func (b *bed) readObject(kind, name string) client.Object {
	meta := metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name + "-uid"), Annotations: map[string]string{holdfast.AnnotationClaim: `{"holder":"","epoch":1}`},
	}
	if kind == operation.KindRestore {
		r := &velerov1.Restore{ObjectMeta: meta}
		r.Status.Phase = velerov1.RestorePhase(waiting)
		return r
	}
	o := &velerov1.Backup{ObjectMeta: meta}
	o.Status.Phase = waiting
	return o
}

func (b *bed) readBackup(name string) *velerov1.Backup {
	b.Helper()
	o := &velerov1.Backup{}
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
	return o
}

// editBackup is a change of a backup by another process.
func (b *bed) editBackup(name string, change func(*velerov1.Backup)) {
	b.Helper()
	o := b.readBackup(name)
	change(o)
	require.NoError(b, b.api.Update(b.Context(), o))
}

// recordedStates are the operations of a job as the bucket has them.
func (b *bed) recordedStates(kind, name string) []operation.State {
	b.Helper()
	l, err := operation.Open(b.Context(), b.store, operation.Job{Kind: kind, Name: name, UID: name + "-uid"})
	require.NoError(b, err)
	return l.States()
}

// advanceClock lets time pass.
func (b *bed) advanceClock(d time.Duration) {
	b.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// files has one store.
type files struct {
	store objectstore.Store
	err   error
}

// Store implements monitor.Files.
func (f files) Store(context.Context, client.Object) (objectstore.Store, error) {
	return f.store, f.err
}

// replica is one process.
type replica struct {
	*bed
	*monitor.Monitor
	stop func()
}

// startReplica brings a replica to life until it is stopped, or the test ends.
func (b *bed) startReplica(change ...func(*monitor.Config, *poll.Config)) *replica {
	b.Helper()
	log := slog.New(slog.NewTextHandler(b.Output(), nil))
	polling := poll.Config{Actions: &operation.Actions{Shared: b.plugins}, Metrics: silence{}, Clock: clock.RealClock{}, Log: log, Frequency: frequency, Grace: grace}
	cfg := monitor.Config{
		Reader: b.api, Client: b.api, Namespace: namespace, Files: files{store: b.store}, Bus: b.bus, Events: b.events,
		Frequency: frequency, Clock: clock.RealClock{}, Log: log,
	}
	for _, c := range change {
		c(&cfg, &polling)
	}
	poller := poll.New(b.Context(), polling)
	cfg.Poller = poller
	r := &replica{bed: b, Monitor: monitor.New(cfg)}
	ctx, stop := context.WithCancel(b.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = r.Serve(ctx) })
	group.Go(func() { r.watchObjects(ctx) })
	r.stop = sync.OnceFunc(func() {
		stop()
		group.Wait()
		poller.Close()
	})
	b.Cleanup(r.stop)
	return r
}

// watchObjects is the controllers: they show each version of each object, and what is due.
func (r *replica) watchObjects(ctx context.Context) {
	wake := make(chan struct{}, 1)
	r.mu.Lock()
	r.wakes = append(r.wakes, wake)
	r.mu.Unlock()
	shown, due := map[string]string{}, map[string]time.Time{}
	all := map[string]func(version string){} // the objects there are or were
	show := func(o client.Object, do func(context.Context, ctrl.Request) (ctrl.Result, error)) string {
		key := fmt.Sprintf("%T %s", o, o.GetName())
		all[key] = func(version string) { showObject(ctx, key, version, client.ObjectKeyFromObject(o), do, shown, due) }
		return key
	}
	for {
		var backups velerov1.BackupList
		var restores velerov1.RestoreList
		if r.api.List(ctx, &backups) != nil || r.api.List(ctx, &restores) != nil {
			return
		}
		versions := map[string]string{}
		for i := range backups.Items {
			versions[show(&backups.Items[i], r.Monitor.Backup)] = backups.Items[i].ResourceVersion
		}
		for i := range restores.Items {
			versions[show(&restores.Items[i], r.Restore)] = restores.Items[i].ResourceVersion
		}
		for key, one := range all {
			one(versions[key])
		}
		next := time.Hour
		for _, at := range due {
			next = min(next, time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-time.After(next):
		}
	}
}

func showObject(ctx context.Context, key, version string, name types.NamespacedName, do func(context.Context, ctrl.Request) (ctrl.Result, error),
	shown map[string]string, due map[string]time.Time,
) {
	if again, waits := due[key]; shown[key] == version && (!waits || time.Now().Before(again)) {
		return
	}
	shown[key] = version
	delete(due, key)
	result, err := do(ctx, ctrl.Request{NamespacedName: name})
	switch {
	case err != nil:
		due[key] = time.Now().Add(time.Second)
	case result.RequeueAfter > 0:
		due[key] = time.Now().Add(result.RequeueAfter)
	}
}

// plugins have operations with the progress that the test sets. Safe for concurrent use.
type plugins struct {
	mu       sync.Mutex
	progress map[string]action.Progress
	unknown  map[string]bool // operations that the plugin denies to know
	asked    map[string]int
	told     []string
}

func (p *plugins) setProgress(id string, progress action.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress[id] = progress
}

func (p *plugins) countCalls(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[id]
}

func (p *plugins) cancelledIDs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.told...)
}

// Progress implements action.Operations.
func (p *plugins) Progress(_ context.Context, op action.Operation, _ []byte) (action.Progress, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked == nil {
		p.asked = map[string]int{}
	}
	p.asked[op.ID]++
	if p.unknown[op.ID] {
		return action.Progress{}, action.ErrUnknownOperation
	}
	return p.progress[op.ID], nil
}

// Cancel implements action.Operations.
func (p *plugins) Cancel(_ context.Context, op action.Operation, _ []byte, _ time.Duration) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, op.ID)
	p.progress[op.ID] = action.Progress{Done: true, Err: "stopped"}
	return true, nil
}

// Logs implements action.Operations.
func (*plugins) Logs(context.Context, action.Operation, []byte, time.Time, bool) iter.Seq2[action.LogLine, error] {
	return func(func(action.LogLine, error) bool) {}
}

type silence struct{}

// Polled implements poll.Metrics.
func (silence) Polled(string, time.Duration) {}

// Ended implements poll.Metrics.
func (silence) Ended(string) {}

// Stalled implements poll.Metrics.
func (silence) Stalled() {}

// events keeps recorded events. Safe for concurrent use.
type events struct {
	mu   sync.Mutex
	list []string
}

// Eventf implements monitor.Events.
func (e *events) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := ""
	if o, ok := regarding.(client.Object); ok {
		name = o.GetName()
	}
	e.list = append(e.list, name+" "+reason+": "+fmt.Sprintf(note, args...))
}

func (e *events) recordedEvents() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.list...)
}

// bus keeps one hint for each object until its handler is done with it, and delivers it again after
// the delay of its outcome, to any of the consumers. Safe for concurrent use.
type bus struct {
	mu       sync.Mutex
	down     bool
	swallows bool
	kept     map[string]bool
	queue    chan *workv1.Hint
	delivers int
}

func newBus() *bus { return &bus{kept: map[string]bool{}, queue: make(chan *workv1.Hint, 64)} }

// setFaults makes the bus refuse hints, or take hints that it never delivers.
func (b *bus) setFaults(down, swallows bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down, b.swallows = down, swallows
	if down || swallows {
		clear(b.kept) // the stream was deleted
	}
}

func (b *bus) countDelivered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.delivers
}

// Publish implements monitor.Bus.
func (b *bus) Publish(_ context.Context, _ messaging.What, hint *workv1.Hint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.down:
		return jobtest.ErrDown
	case b.swallows || b.kept[hint.GetUid()]:
		return nil
	}
	b.kept[hint.GetUid()] = true
	b.queue <- hint
	return nil
}

// Consume implements monitor.Bus.
func (b *bus) Consume(ctx context.Context, _ messaging.What, cfg messaging.ConsumerConfig, handle messaging.Handler) error {
	var group sync.WaitGroup
	defer group.Wait()
	for range cfg.Concurrency {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case hint := <-b.queue:
					b.mu.Lock()
					b.delivers++
					b.mu.Unlock()
					b.settleHint(hint, handle(ctx, hint))
				}
			}
		})
	}
	return nil
}

func (b *bus) settleHint(hint *workv1.Hint, o messaging.Outcome) {
	if o.Retries() {
		time.AfterFunc(o.Delay(), func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.kept[hint.GetUid()] {
				b.queue <- hint
			}
		})
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.kept, hint.GetUid())
}
