package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// outcome is what a finished backup amounts to, but for times and order.
type outcome struct {
	Phase            velerov1.BackupPhase
	Items            int
	Warnings, Errors int
	Keys             []string
	Log              []string
	Volumes          []string
	Resources        string
	Results          string
}

// varying matches what differs between two runs of the same backup.
var varying = regexp.MustCompile(`^time="[^"]*" | at revision [0-9]+`)

func (w *world) readOutcome(t *testing.T, b *velerov1.Backup) outcome {
	t.Helper()
	got := w.requireComplete(t, b, velerov1.BackupPhasePartiallyFailed)
	var log []string
	for line := range strings.Lines(w.readDocument(t, layout.BackupLog(b.Name))) {
		log = append(log, varying.ReplaceAllString(line, ""))
	}
	slices.Sort(log)
	volumes := strings.Split(strings.Trim(w.readDocument(t, layout.BackupVolumeInfo(b.Name)), "[]\n"), "},{")
	slices.Sort(volumes)
	return outcome{
		Phase: got.Status.Phase, Items: got.Status.Progress.ItemsBackedUp, Warnings: got.Status.Warnings, Errors: got.Status.Errors,
		Keys: w.store.Keys(), Log: log, Volumes: volumes,
		Resources: w.readDocument(t, layout.BackupResourceList(b.Name)), Results: w.readDocument(t, layout.BackupResults(b.Name)),
	}
}

// richWorld has a bit of everything: claims with volumes, a named namespace that does not exist,
// several parts.
func richWorld(t *testing.T, workers int) (*world, *velerov1.Backup) {
	t.Helper()
	w := newWorld(t)
	for i := range 3 {
		w.api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("data-%d", i),
			Body: map[string]any{"spec": map[string]string{"volumeName": fmt.Sprintf("pv-%d", i)}}})
	}
	w.Workers = workers
	return w, w.admitBackup(t, "b1", func(b *velerov1.Backup) { b.Spec.IncludedNamespaces = []string{"a", "gone"} })
}

// process is one that can die: from then on nothing it does has an effect.
type process struct {
	mu     sync.Mutex
	writes int
	limit  int // 0: runs indefinitely
}

var errDead = errors.New("the process is dead")

// countWrite counts a write and reports whether the process dies before it.
func (p *process) countWrite(w *world, write bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if write {
		p.writes++
	}
	if p.limit == 0 || p.writes < p.limit {
		return nil
	}
	w.instance.LoseClaim()
	return errDead
}

func (p *process) hasDied() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit > 0 && p.writes >= p.limit
}

// mortalRunner makes the world's runner die before its n-th write to bucket or API.
func (w *world) mortalRunner(n int) *process {
	p := &process{limit: n}
	w.store.Inject(func(op memstore.Op, _ string) error {
		return p.countWrite(w, op == memstore.OpCreate || op == memstore.OpCompose || op == memstore.OpDelete)
	})
	w.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			data, err := patch.Data(obj)
			if err != nil {
				return err
			}
			if err := p.countWrite(w, !bytes.Contains(data, []byte("itemsBackedUp")) || bytes.Contains(data, []byte("completionTimestamp"))); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	return p
}

// replaceRunner replaces the world's runner by another holder, which runs.
func (w *world) replaceRunner(name string) {
	w.store.Inject(nil)
	w.Client, w.instance.Name = w.client, name
}

// sweepLeftovers does for an ended backup what the sweep of leftovers in the deletion service does:
// it removes the parts of an object whose phase is terminal, in a directory whose owner file it can
// read. A backup that has not ended is left alone.
func (w *world) sweepLeftovers(t *testing.T, b *velerov1.Backup) (swept int) {
	t.Helper()
	if !w.readBackup(t, b).Status.Phase.Terminal() {
		return 0
	}
	data, ok := w.store.Bytes(layout.OwnerFile(b.Name))
	require.True(t, ok, "a directory that nobody owns is not swept")
	owner, err := layout.DecodeOwner(data)
	require.NoError(t, err)
	require.Equal(t, layout.Owner{BackupUID: string(b.UID), ClusterUID: "cluster-1"}, owner)
	for _, key := range w.store.Keys() {
		if strings.HasPrefix(key, layout.PartsPrefix(b.Name, string(b.UID))) {
			require.NoError(t, w.store.Delete(t.Context(), key))
			swept++
		}
	}
	return swept
}

// A runner that dies before any write to bucket or API server is followed by one that ends the
// backup as the undisturbed run does. Where it dies after the phase was written, in the sweep of
// the parts, none follows, and what it left is a leftover.
func TestDeathAtEachWrite(t *testing.T) {
	w, b := richWorld(t, 1)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	want := w.readOutcome(t, b)
	require.Equal(t, 54, want.Items)
	require.Equal(t, 3, want.Warnings)
	require.Equal(t, 1, want.Errors)
	require.Contains(t, want.Results, "gone")
	require.Contains(t, strings.Join(want.Log, ""), "level=error")
	for _, run := range []struct{ workers, step int }{{1, 1}, {4, 3}} {
		t.Run(fmt.Sprintf("%d workers", run.workers), func(t *testing.T) {
			leftovers := 0
			for n := 1; ; n += run.step {
				w, b := richWorld(t, run.workers)
				p := w.mortalRunner(n)
				err := w.Run(t.Context(), "b1", b.UID)
				if !p.hasDied() {
					require.NoError(t, err)
					require.Equal(t, want, w.readOutcome(t, b))
					require.Greater(t, n, 40, "the run was cut at many points")
					require.Greater(t, leftovers, 2, "the sweep was cut")
					return
				}
				require.NotEqual(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase, "death is no failure")
				w.replaceRunner("next")
				if w.sweepLeftovers(t, b) > 0 {
					leftovers++
				}
				require.NoError(t, w.Run(t.Context(), "b1", b.UID), "dead before write %d", n)
				require.Equal(t, want, w.readOutcome(t, b), "dead before write %d", n)
			}
		})
	}
}

// unserved is a cluster that cannot be discovered while err is set.
type unserved struct {
	Cluster
	err error
}

func (u *unserved) Discover(ctx context.Context) (*resource.Catalog, error) {
	if u.err != nil {
		return nil, u.err
	}
	return u.Cluster.Discover(ctx)
}

// uncomposed is a bucket that cannot compose while err is set.
type uncomposed struct {
	objectstore.Store
	err error
}

func (u *uncomposed) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	if u.err != nil {
		return objectstore.Info{}, u.err
	}
	return u.Store.Compose(ctx, key, src)
}

// failedOutcome is how a failed backup ended, but for times.
func (w *world) failedOutcome(t *testing.T, b *velerov1.Backup) []string {
	t.Helper()
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
	require.Equal(t, []string{layout.BackupLog("b1"), layout.BackupResults("b1"), layout.OwnerFile("b1"), layout.BackupMetadata("b1")}, w.store.Keys())
	data, _ := w.store.Bytes(layout.BackupMetadata("b1"))
	var committed velerov1.Backup
	require.NoError(t, json.Unmarshal(data, &committed))
	require.Equal(t, got.Status, committed.Status, "bucket and object agree")
	return []string{got.Status.FailureReason, varying.ReplaceAllString(w.readDocument(t, layout.BackupLog("b1")), ""), w.readDocument(t, layout.BackupResults("b1"))}
}

// A runner that dies while it ends a backup as Failed, before or after collecting it, is followed
// by one that ends it the same way, even if nothing fails there: the first record of the failure
// decides.
func TestDeathAtEachWriteOfAFailure(t *testing.T) {
	for name, cause := range map[string]struct{ discover, compose error }{
		"collecting": {discover: errors.New("no catalog")},
		"publishing": {compose: fmt.Errorf("bucket is broken: %w", objectstore.ErrAccess)},
	} {
		for _, lasting := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, lasting %t", name, lasting), func(t *testing.T) {
				begin := func() (w *world, b *velerov1.Backup, heal func()) {
					w, b = richWorld(t, 1)
					w.PartItems = 1000 // what dies while it collects is not of interest here
					api, bucket := &unserved{w.Cluster, cause.discover}, &uncomposed{w.store, cause.compose}
					w.Cluster, w.Locations = api, locations{bucket}
					return w, b, func() { api.err, bucket.err = nil, nil }
				}
				w, b, _ := begin()
				require.NoError(t, w.Run(t.Context(), "b1", b.UID))
				want := w.failedOutcome(t, b)
				require.Contains(t, want[0], errors.Join(cause.discover, cause.compose).Error())
				require.Contains(t, want[1], want[0])
				decided := false
				for n := 1; ; n++ {
					w, b, heal := begin()
					p := w.mortalRunner(n)
					err := w.Run(t.Context(), "b1", b.UID)
					if !p.hasDied() {
						require.NoError(t, err)
						require.True(t, decided, "the run was cut after the failure")
						return
					}
					decided = w.hasFailureRecord()
					w.replaceRunner("next")
					w.sweepLeftovers(t, b)
					if !lasting {
						heal()
					}
					require.NoError(t, w.Run(t.Context(), "b1", b.UID), "dead before write %d", n)
					if !lasting && !decided {
						w.requireComplete(t, b, velerov1.BackupPhasePartiallyFailed)
						continue
					}
					require.Equal(t, want, w.failedOutcome(t, b), "dead before write %d", n)
				}
			})
		}
	}
}

// hasFailureRecord reports whether the bucket holds a failure that the backup failed.
func (w *world) hasFailureRecord() bool {
	composition, _ := w.store.Bytes(layout.Composition("b1", "uid-1"))
	_, condemned := w.store.Bytes(layout.Failure("b1", "uid-1"))
	_, committed := w.store.Bytes(layout.BackupMetadata("b1"))
	return condemned || committed || bytes.Contains(composition, []byte(`"failure"`))
}

// A holder that fails to collect while the composition of another is fixed publishes that one.
func TestACompositionExcludesAFailure(t *testing.T) {
	w, b := richWorld(t, 1)
	var once sync.Once
	next := w.anotherRunner(t, "next")
	other := next.instance
	w.Cluster = &interrupted{Cluster: w.Cluster, fn: func() {
		once.Do(func() {
			// The other loses the claim to this process once it fixed the composition.
			w.store.Inject(func(op memstore.Op, _ string) error {
				if op == memstore.OpCompose {
					other.LoseClaim()
					return errDead
				}
				return nil
			})
			mine := w.readBackup(t, b)
			require.NoError(t, next.Run(t.Context(), "b1", b.UID))
			w.store.Inject(nil)
			mine.ResourceVersion = w.readBackup(t, b).ResourceVersion
			require.NoError(t, w.client.Update(t.Context(), mine))
		})
	}}
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, 54, w.readOutcome(t, b).Items)
}

// interrupted does something, then cannot be discovered.
type interrupted struct {
	Cluster
	fn func()
}

func (i *interrupted) Discover(context.Context) (*resource.Catalog, error) {
	i.fn()
	return nil, errors.New("no catalog")
}

// A process that sleeps past its claim at any point where it would act without the protection of an
// epoch does nothing when it wakes up.
func TestAWokenHolderStops(t *testing.T) {
	for n := 1; ; n++ {
		w, b := richWorld(t, 1)
		next := w.anotherRunner(t, "next")
		var calls atomic.Int32
		slept := false
		var after []string
		w.instance.ConfirmWith = func(obj client.Object) error {
			c, _, err := claim.Parse(obj)
			require.NoError(t, err)
			require.Equal(t, "me", c.Owner, "what is confirmed is this process's claim")
			if int(calls.Add(1)) != n {
				return nil
			}
			slept = true
			require.NoError(t, next.Run(t.Context(), "b1", b.UID))
			after = w.store.Keys()
			return claim.ErrLost
		}
		require.NoError(t, w.Run(t.Context(), "b1", b.UID))
		w.requireComplete(t, b, velerov1.BackupPhasePartiallyFailed)
		if !slept {
			require.Greater(t, n, 4, "the claim is confirmed before reserving, composing, publishing and committing")
			return
		}
		require.Equal(t, after, w.store.Keys(), "asleep at confirmation %d", n)
	}
}

// stopAtList calls stop at the fourth list of a backup.
func (w *world) stopAtList(stop func()) {
	requests := 0
	w.api.Before = func(_ *kubetest.Server, r *http.Request) {
		if r.URL.Query().Get("limit") == "1" {
			return // it compares revisions, beside the lists
		}
		if requests++; requests == 4 {
			stop()
		}
	}
}

func TestToldToStopAJobRecordsWhatItListed(t *testing.T) {
	w, b := richWorld(t, 1)
	w.PartItems, w.Clock = 1000, clock.RealClock{}
	ctx, cancel := context.WithCancel(t.Context())
	w.stopAtList(cancel)
	require.ErrorIs(t, w.Run(ctx, "b1", b.UID), context.Canceled)
	w.requireHandedOver(t, b)
	require.Zero(t, w.readBackup(t, b).Status.Errors)
	before := w.api.Lists()
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, 54, w.readOutcome(t, b).Items)
	again := w.api.Lists() - before

	whole, b2 := richWorld(t, 1)
	whole.PartItems = 1000
	require.NoError(t, whole.Run(t.Context(), "b1", b2.UID))
	require.Less(t, again, whole.api.Lists(), "what was listed is not listed again")
}

// lateContext is a stop whose signal is seen before the contexts that end with it have ended.
type lateContext struct {
	context.Context
	delay time.Duration
}

// Value hides the context within, so that package context calls AfterFunc.
func (lateContext) Value(any) any { return nil }

// AfterFunc calls f after the delay.
func (c lateContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.Context, func() { time.AfterFunc(c.delay, f) })
}

func TestAStopIsNoFailureThoughContextsEndLater(t *testing.T) {
	w, b := richWorld(t, 1)
	w.PartItems, w.Clock = 1000, clock.RealClock{}
	ctx, cancel := context.WithCancel(t.Context())
	w.stopAtList(cancel)
	require.ErrorIs(t, w.Run(lateContext{ctx, 100 * time.Millisecond}, "b1", b.UID), context.Canceled)
	w.requireHandedOver(t, b)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhasePartiallyFailed)
}

func TestALabelDoesNotDisturbTheJob(t *testing.T) {
	w, b := richWorld(t, 1)
	var once sync.Once
	w.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "checkpoint-") {
			once.Do(func() {
				now := w.readBackup(t, b)
				now.Labels = map[string]string{"team": "blue"}
				require.NoError(t, w.client.Update(t.Context(), now))
			})
		}
		return nil
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.readOutcome(t, b)
	require.Equal(t, "blue", w.readBackup(t, b).Labels["team"])
}

func TestConflictsDoNotDisturbTheJob(t *testing.T) {
	w, b := richWorld(t, 1)
	var patches atomic.Int32
	w.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if patches.Add(1)%4 != 0 {
				return apierrors.NewConflict(schema.GroupResource{Resource: "backups"}, obj.GetName(), errors.New("somebody writes"))
			}
			return c.Patch(ctx, obj, p, opts...)
		},
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.readOutcome(t, b)
	require.GreaterOrEqual(t, patches.Load(), int32(8))
}

// A Backup deleted in the middle stops its job before the commit: what it left is swept by its
// owner file.
func TestADeletedBackupStopsItsJob(t *testing.T) {
	w, b := richWorld(t, 1)
	var once sync.Once
	deleted := make(chan struct{})
	holder := claim.NewInstance(claim.Config{Reader: w.client, Client: w.client, Namespace: namespace, Name: "me",
		Timeout: time.Second, Clock: w.Clock, Log: w.Log})
	ctx, cancel := context.WithCancel(t.Context())
	alive := make(chan error, 1)
	go func() { alive <- holder.Run(ctx) }()
	require.Eventually(t, holder.Ready, time.Minute, time.Millisecond)
	w.Instance = holder
	w.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpCreate && strings.Contains(key, "/parts/") {
			once.Do(func() {
				require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
				close(deleted)
			})
			return errors.New("the bucket is slow")
		}
		return nil
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	<-deleted
	_, committed := w.store.Bytes(layout.BackupMetadata("b1"))
	require.False(t, committed)
	cancel()
	require.NoError(t, <-alive)
}
