package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

const (
	namespace = "velero"
	timeout   = 6 * time.Second
	grace     = 5 * time.Second
)

// The phases of the jobs here, which are ConfigMaps.
const (
	phaseNew     = ""
	phaseQueued  = "Queued"
	phaseRunning = "Running"
	phaseDone    = "Done"
	phaseFailed  = "Failed"
)

type job = corev1.ConfigMap

func jobPhase(o *job) string { return o.Data["phase"] }

func setPhase(p string) func(*job) error {
	return func(o *job) error {
		if o.Data == nil {
			o.Data = map[string]string{}
		}
		o.Data["phase"] = p
		return nil
	}
}

// bed is an API server, a message bus and any number of replicas, in the time of a bubble.
type bed struct {
	*testing.T
	api    client.WithWatch
	bus    *jobtest.Bus
	faults interceptor.Funcs // of what replicas ask
	log    journal
	tick   time.Duration // of the controllers; 0 means 100 ms

	mu   sync.Mutex
	runs []string // replica/name@epoch
}

// journal keeps what is logged.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String is what was logged so far.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// inBubble runs a test whose time passes when everything waits.
func inBubble(t *testing.T, do func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		do(&bed{T: t, api: fake.NewClientBuilder().Build(), bus: jobtest.NewBus()})
	})
}

// createJob creates a job in a phase.
func (b *bed) createJob(name, phase string) {
	b.Helper()
	o := &job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}, Data: map[string]string{"phase": phase}}
	require.NoError(b, b.api.Create(b.Context(), o))
}

func (b *bed) getJob(name string) *job {
	b.Helper()
	o := &job{}
	require.NoError(b, b.api.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
	return o
}

// editJob changes an object as another client.
func (b *bed) editJob(name string, change func(*job)) {
	b.Helper()
	o := b.getJob(name)
	change(o)
	require.NoError(b, b.api.Update(b.Context(), o))
}

func (b *bed) readClaim(name string) claim.Claim {
	b.Helper()
	c, _, err := claim.Parse(b.getJob(name))
	require.NoError(b, err)
	return c
}

func (b *bed) noteRun(run string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, run)
}

func (b *bed) notedRuns() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.runs...)
}

// advanceClock lets time pass.
func (b *bed) advanceClock(d time.Duration) {
	b.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// requireRunsAfter lets time pass, then compares.
func (b *bed) requireRunsAfter(d time.Duration, runs ...string) {
	b.Helper()
	b.advanceClock(d)
	require.Equal(b, append([]string(nil), runs...), b.notedRuns())
}

// replica is one process.
type replica struct {
	*bed
	*kind
	engine   *engine.Engine[*job]
	instance *claim.Instance
	stop     func() // in good order
	kill     func() // as a power failure does: nothing is written any more
}

// errDead is the error of every call of a dead process.
var errDead = errors.New("dead")

// startReplica brings a replica to life. configure may be nil.
func (b *bed) startReplica(name string, k *kind, configure func(*engine.Config[*job])) *replica {
	b.Helper()
	k.bed, k.replica = b, name
	var dead sync.Map
	alive := func() error {
		if _, ok := dead.Load("dead"); ok {
			return errDead
		}
		return nil
	}
	api := interceptor.NewClient(interceptor.NewClient(b.api, b.faults), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(alive(), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(alive(), c.List(ctx, l, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := alive(); err != nil {
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	log := slog.New(slog.NewTextHandler(io.MultiWriter(b.Output(), &b.log), &slog.HandlerOptions{Level: slog.LevelDebug})).With("replica", name)
	instance := claim.NewInstance(claim.Config{
		Reader: api, Client: api, Namespace: namespace, Name: name, Address: name + ":1", Timeout: timeout, Clock: clock.RealClock{}, Log: log,
	})
	config := engine.Config[*job]{
		Service: "tester", ObjectKind: "ConfigMap", Kind: k, New: func() *job { return &job{} }, NewList: func() client.ObjectList { return &corev1.ConfigMapList{} },
		Reader: api, Cached: b.api, Client: api, Namespace: namespace, Instance: instance, Bus: b.bus, Work: messaging.WorkBackupRun,
		Concurrency: 2, Grace: grace, Cancellable: true, Clock: clock.RealClock{}, Log: log,
	}
	if configure != nil {
		configure(&config)
	}
	r := &replica{bed: b, kind: k, instance: instance, engine: engine.New(config)}
	r.runReplica(func() { dead.Store("dead", true) })
	return r
}

// runReplica runs a replica until it is stopped or killed, or the test ends.
func (r *replica) runReplica(die func()) {
	running, stop := context.WithCancel(r.Context())
	leasing, leave := context.WithCancel(context.WithoutCancel(r.Context()))
	looking, look := context.WithCancel(r.Context())
	var engines, rest sync.WaitGroup
	engines.Go(func() { _ = r.engine.Serve(running) })
	rest.Go(func() { _ = r.instance.Run(leasing) })
	rest.Go(func() { r.watchJobs(looking) })
	r.stop = sync.OnceFunc(func() {
		look()
		stop()
		engines.Wait()
		leave()
		rest.Wait()
	})
	r.kill = func() {
		die()
		look()
	}
	r.Cleanup(r.stop)
	r.advanceClock(time.Second) // until the Lease is written
}

// watchJobs is the controller: it shows each version of each object, and what is due.
func (r *replica) watchJobs(ctx context.Context) {
	ticker := time.NewTicker(cmp.Or(r.tick, 100*time.Millisecond))
	defer ticker.Stop()
	shown, due := map[string]string{}, map[string]time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			list := &corev1.ConfigMapList{}
			if r.api.List(ctx, list) != nil {
				return
			}
			for i := range list.Items {
				o := &list.Items[i]
				again := due[o.Name]
				if shown[o.Name] == o.ResourceVersion && (again.IsZero() || now.Before(again)) {
					continue
				}
				shown[o.Name] = o.ResourceVersion
				delete(due, o.Name)
				result, err := r.engine.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
				switch {
				case err != nil:
					due[o.Name] = now.Add(time.Second)
				case result.RequeueAfter > 0:
					due[o.Name] = now.Add(result.RequeueAfter)
				}
			}
		}
	}
}

// kind has jobs that run a test's function.
type kind struct {
	*bed
	replica  string
	run      func(ctx context.Context, h *engine.Held[*job]) error
	givenUp  func(ctx context.Context, h *engine.Held[*job]) error // what ends a job that is given up
	admit    func(o *job) (engine.Decision[*job], error)           // nil: Claim
	claimed  func()
	finalize func(o *job, free func() bool) (time.Duration, error)
}

// Pending implements engine.Kind.
func (k *kind) Pending(_ context.Context, o *job) (engine.Interest, error) {
	switch jobPhase(o) {
	case phaseNew:
		return engine.Begin, nil
	case phaseQueued:
		return engine.Wait, nil
	case phaseRunning:
		return engine.Resume, nil
	}
	return engine.None, nil
}

// Terminal implements engine.Kind.
func (k *kind) Terminal(o *job) bool { return jobPhase(o) == phaseDone || jobPhase(o) == phaseFailed }

// Admit implements engine.Kind.
func (k *kind) Admit(_ context.Context, o *job) (engine.Decision[*job], error) {
	if k.admit != nil {
		return k.admit(o)
	}
	return engine.Claim[*job](k), nil
}

// Finalize implements engine.Finalizer.
func (k *kind) Finalize(_ context.Context, o *job, free func() bool) (time.Duration, error) {
	if k.finalize == nil {
		return 0, nil
	}
	return k.finalize(o, free)
}

// Claimed implements engine.Job.
func (k *kind) Claimed(o *job, _ claim.Claim) error {
	if k.claimed != nil {
		k.claimed()
	}
	return setPhase(phaseRunning)(o)
}

// Run implements engine.Job.
func (k *kind) Run(ctx context.Context, h *engine.Held[*job]) error {
	k.noteRun(fmt.Sprintf("%s/%s@%d", k.replica, h.Object.Name, h.Claim.Epoch))
	if k.run != nil {
		return k.run(ctx, h)
	}
	return finishJob(ctx, h)
}

// GiveUp implements engine.Kind.
func (k *kind) GiveUp(o *job, reason error, claimable bool) engine.Decision[*job] {
	if claimable {
		return engine.Claim[*job](&ending{k})
	}
	return engine.End(setPhase(phaseFailed), func(context.Context, *job) { k.noteRun(fmt.Sprintf("%s ended: %v", o.Name, reason)) })
}

// ending ends a job that is given up.
type ending struct{ *kind }

// Run implements engine.Job.
func (k *ending) Run(ctx context.Context, h *engine.Held[*job]) error {
	k.noteRun(fmt.Sprintf("%s/%s@%d given up", k.replica, h.Object.Name, h.Claim.Epoch))
	if k.givenUp != nil {
		return k.givenUp(ctx, h)
	}
	_, err := h.Finish(ctx, setPhase(phaseFailed))
	return err
}

func finishJob(ctx context.Context, h *engine.Held[*job]) error {
	_, err := h.Finish(ctx, setPhase(phaseDone))
	return err
}

// untilStopped is a job that lasts as long as it may.
func untilStopped(ctx context.Context, _ *engine.Held[*job]) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func notFound(name string) error { return apierrors.NewNotFound(schema.GroupResource{}, name) }

func failDecision(what error) func(*job) (engine.Decision[*job], error) {
	return func(*job) (engine.Decision[*job], error) { return engine.Decision[*job]{}, what }
}
