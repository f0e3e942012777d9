package restore_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// waiter is an action that can be asked whether items are ready.
type waiter struct {
	*fake
	ready func(ctx context.Context, items []action.Item) (bool, error)

	mu    sync.Mutex
	asked [][]action.Item
}

func (w *waiter) Ready(ctx context.Context, items []action.Item, _ *action.Restore) (bool, error) {
	w.mu.Lock()
	w.asked = append(w.asked, items)
	w.mu.Unlock()
	return w.ready(ctx, items)
}

func (w *waiter) askedQuestions() [][]action.Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// waitingAction is an action that has objects, named as Identity does, wait for others to be ready.
func waitingAction(timeout time.Duration, additional map[string][]action.Item, ready func(context.Context, []action.Item) (bool, error)) *waiter {
	return &waiter{ready: ready, fake: &fake{name: "a.io/wait", execute: func(o, _ *action.Object) (action.RestoreResult, error) {
		id, err := o.Identity()
		items, ok := additional[id.String()]
		return action.RestoreResult{Object: o, Additional: items, Wait: ok, WaitTimeout: timeout}, err
	}}}
}

var begun = time.Unix(1_800_000_000, 0)

// recordedTimes returns when each object got its outcome, in seconds since begun.
func (f *finishedRestore) recordedTimes(t *testing.T) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	f.EachRecord(t, func(rec *outcome.Record) {
		if rec.Action != "" {
			out[rec.Resource+" "+rec.Name] = float64(rec.Time-begun.UnixMilli()) / 1000
		}
	})
	return out
}

// eachRecord calls do with each record, in their order.
func (f *finishedRestore) EachRecord(t *testing.T, do func(*outcome.Record)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(f.records, "*.gz"))
	require.NoError(t, err)
	for _, path := range paths {
		file, err := os.Open(path)
		require.NoError(t, err)
		zip, err := gzip.NewReader(file)
		require.NoError(t, err)
		for decoder := json.NewDecoder(zip); ; {
			var rec outcome.Record
			if err := decoder.Decode(&rec); errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			do(&rec)
		}
		require.NoError(t, file.Close())
	}
}

var secretS = action.Item{GroupResource: secrets, Namespace: "a", Name: "s"}

// newWaitingPair is an object that waits for a Secret.
func newWaitingPair() (*backup, map[string][]action.Item) {
	b := &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	b.addObject("secrets", "v1", "Secret", "a", "s", nil)
	return b, map[string][]action.Item{"ConfigMap a/c": {secretS}}
}

func TestAnObjectWaitsUntilItsAdditionalItemsAreReady(t *testing.T) {
	t.Parallel()
	no := errors.New("plugin a.io/wait: AreAdditionalItemsReady: no idea")
	for name, tt := range map[string]struct {
		timeout time.Duration                // 0 is the restore's, a minute
		ready   func(time int) (bool, error) // after so many seconds
		after   float64
		err     string
	}{
		"ready at once":         {0, func(int) (bool, error) { return true, nil }, 0, ""},
		"ready after 3 seconds": {0, func(s int) (bool, error) { return s == 3, nil }, 3, ""},
		"never": {5 * time.Second, func(int) (bool, error) { return false, nil }, 5,
			"configmaps a/c: action a.io/wait: additional items are not ready after 5s: restored all the same"},
		"never, by default": {0, func(int) (bool, error) { return false, nil }, 60, "not ready after 1m0s"},
		"error": {0, func(s int) (bool, error) {
			if s < 2 {
				return false, nil
			}
			return false, no
		}, 2, "configmaps a/c: whether additional items are ready is not known: " + no.Error()},
		"panic": {0, func(int) (bool, error) { panic("oh") }, 0, "AreAdditionalItemsReady: panic: oh"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kubetest.Start(t)
			b, items := newWaitingPair()
			clk := clocktesting.NewFakeClock(begun)
			w := waitingAction(tt.timeout, items, func(context.Context, []action.Item) (bool, error) {
				assert.NotNil(t, s.Object("/api/v1/namespaces/a/secrets/s"), "asked before the item was restored")
				assert.Nil(t, s.Object("/api/v1/namespaces/a/configmaps/c"), "asked after the object was restored")
				ready, err := tt.ready(int(clk.Since(begun).Seconds()))
				if !ready && err == nil {
					clk.Step(time.Second)
				}
				return ready, err
			})
			f := runAt(t, clk, s, b, velerov1.RestoreSpec{}, withActions(t, w))
			require.Equal(t, []string{"a/c(created)"}, f.list["v1/ConfigMap"])
			require.Contains(t, f.results.Errors.allMessages(), tt.err)
			require.Equal(t, tt.err != "", f.recorder.Counts().Errors == 1)
			require.Equal(t, tt.err == "", f.recorder.Counts().Errors == 0)
			require.InDelta(t, tt.after, f.recordedTimes(t)["configmaps c"], 0.001)
			require.Len(t, w.askedQuestions(), max(1, min(int(tt.after), 60))+map[bool]int{true: 1}[tt.after > 0 && !strings.Contains(tt.err, "not ready")])
			require.Equal(t, []action.Item{secretS}, w.askedQuestions()[0])
			require.Equal(t, 1, w.timesCalled("ConfigMap a/c"))
		})
	}
}

// The process that is asked may die of another object.
func TestAQuestionWhoseProcessDiedIsRepeated(t *testing.T) {
	t.Parallel()
	died := errors.New("plugin process died")
	for name, tt := range map[string]struct {
		deaths int
		err    string
	}{
		"once":   {1, ""},
		"always": {100, "configmaps a/c: whether additional items are ready is not known: " + died.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kubetest.Start(t)
			b, items := newWaitingPair()
			clk := clocktesting.NewFakeClock(begun)
			asked := 0
			w := waitingAction(0, items, func(context.Context, []action.Item) (bool, error) {
				clk.Step(time.Second)
				if asked++; asked <= tt.deaths {
					return false, died
				}
				return true, nil
			})
			crashes := func(c *restore.Config) { c.IsProcessCrash = func(err error) bool { return errors.Is(err, died) } }
			f := runAt(t, clk, s, b, velerov1.RestoreSpec{}, withActions(t, w), crashes)
			require.Equal(t, []string{"a/c(created)"}, f.list["v1/ConfigMap"])
			require.Contains(t, f.results.Errors.allMessages(), tt.err)
			require.Equal(t, tt.err == "", f.recorder.Counts().Errors == 0)
			require.Len(t, w.askedQuestions(), min(tt.deaths+1, 3))
		})
	}
}

func TestAThousandUnrelatedObjectsAreNotDelayed(t *testing.T) {
	s := kubetest.Start(t)
	b, items := newWaitingPair()
	const unrelated = 1000
	for i := range unrelated {
		b.addObject("services", "v1", "Service", "a", fmt.Sprintf("u%04d", i), nil)
	}
	for i := range 100 { // more than there are places
		b.addObject("configmaps", "v1", "ConfigMap", "a", fmt.Sprintf("w%03d", i), nil)
		items[fmt.Sprintf("ConfigMap a/w%03d", i)] = []action.Item{secretS}
	}
	clk := clocktesting.NewFakeClock(begun)
	var recorder *outcome.Recorder
	var step sync.Mutex
	w := waitingAction(0, items, func(context.Context, []action.Item) (bool, error) {
		// Time stands still until everything else has its outcome.
		assert.Eventually(t, func() bool { return recorder.Counts().Done >= unrelated+1 }, time.Minute, time.Millisecond)
		step.Lock()
		defer step.Unlock()
		if ready := clk.Since(begun) >= 4*time.Second; ready {
			return true, nil
		}
		clk.Step(500 * time.Millisecond)
		return false, nil
	})
	f := runAt(t, clk, s, b, velerov1.RestoreSpec{}, withActions(t, w), func(c *restore.Config) { recorder = c.Recorder })
	require.Empty(t, f.results.Errors.allMessages())
	for object, at := range f.recordedTimes(t) {
		if strings.HasPrefix(object, "configmaps ") {
			require.GreaterOrEqual(t, at, 4.0, object)
		} else {
			require.Zero(t, at, object)
		}
	}
	require.Equal(t, unrelated+102, f.recorder.ByAction()["created"])
}

func TestTwoThatWaitForEachOtherEndWithTheWarning(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "one", nil)
	b.addObject("configmaps", "v1", "ConfigMap", "a", "two", nil)
	w := waitingAction(0, map[string][]action.Item{"ConfigMap a/one": {configMap("a", "two")}, "ConfigMap a/two": {configMap("a", "one")}},
		func(context.Context, []action.Item) (bool, error) { return true, nil })
	f := runAt(t, clocktesting.NewFakeClock(begun), s, b, velerov1.RestoreSpec{}, withActions(t, w))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, 2, f.recorder.ByAction()["created"])
	require.Equal(t, 1, f.recorder.Counts().Warnings)
	require.Contains(t, f.results.Warnings.allMessages(), "which action a.io/wait asks for, waits for this object: restored before it")
	require.Len(t, w.askedQuestions(), 1, "the other one has nothing to wait for")
}

func TestItemsThatFailedAreFilteredOut(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
	for _, name := range []string{"created", "failed", "different"} {
		b.addObject("secrets", "v1", "Secret", "a", name, object{"data": object{"k": "v"}})
	}
	b.addObject("pods", "v1", "Pod", "a", "ended", object{"status": object{"phase": "Succeeded"}})
	s.Put("/api/v1/namespaces/a", object{"metadata": object{"name": "a"}})
	s.Put("/api/v1/namespaces/a/secrets/different", object{"metadata": object{"name": "different", "namespace": "a"}})
	s.Put("/api/v1/namespaces/a/secrets/there", object{"metadata": object{"name": "there", "namespace": "a"}})
	s.Fail(func(r *http.Request, body map[string]any) (int, bool) {
		if r.Method == http.MethodPost && kubetest.Meta(body)["name"] == "failed" {
			return http.StatusUnprocessableEntity, false
		}
		return 0, false
	})
	secret := func(name string) action.Item { return action.Item{GroupResource: secrets, Namespace: "a", Name: name} }
	w := waitingAction(0, map[string][]action.Item{"ConfigMap a/c": {secret("failed"), secret("created"), secret("different"), secret("there"), secret("absent"),
		{GroupResource: schema.GroupResource{Resource: "pods"}, Namespace: "a", Name: "ended"}, {GroupResource: schema.GroupResource{Group: "x.io", Resource: "y"}, Name: "z"}}},
		func(context.Context, []action.Item) (bool, error) { return true, nil })
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, w))
	require.Equal(t, [][]action.Item{{secret("created"), secret("different"), secret("there")}}, w.askedQuestions(), "those that are in the cluster")
	require.Equal(t, []string{"a/c(created)"}, f.list["v1/ConfigMap"])
}

func TestAnActionThatCannotBeAskedIsNot(t *testing.T) {
	s := kubetest.Start(t)
	b, items := newWaitingPair()
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, waitingAction(0, items, nil).fake))
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, 2, f.recorder.ByAction()["created"])
	require.True(t, creationOrder(s, "/secrets", "/configmaps")[0] < creationOrder(s, "/secrets", "/configmaps")[1])
}

func TestAHangingQuestionEndsWithTheTimeoutAndHoldsUpNoOther(t *testing.T) {
	s := kubetest.Start(t)
	b, items := newWaitingPair()
	b.addObject("configmaps", "v1", "ConfigMap", "a", "quick", nil)
	items["ConfigMap a/quick"] = []action.Item{secretS}
	clk := clocktesting.NewFakeClock(begun)
	var recorder *outcome.Recorder
	w := waitingAction(0, items, nil)
	var once sync.Once
	w.ready = func(ctx context.Context, _ []action.Item) (bool, error) {
		hangs := false
		once.Do(func() { hangs = true })
		if !hangs {
			return true, nil
		}
		assert.Eventually(t, func() bool { return recorder.Counts().Done == 2 }, time.Minute, time.Millisecond)
		clk.Step(time.Minute)
		<-ctx.Done()
		return false, ctx.Err()
	}
	f := runAt(t, clk, s, b, velerov1.RestoreSpec{}, withActions(t, w), func(c *restore.Config) { recorder = c.Recorder })
	require.Equal(t, 3, f.recorder.ByAction()["created"])
	require.Contains(t, f.results.Errors.allMessages(), "not ready after 1m0s")
	require.Equal(t, 1, f.recorder.Counts().Errors)
}

// An object that waits at a stop or a crash has no outcome; the next holder calls the action again
// and creates nothing twice.
func TestTakeoverInTheMiddleOfAWait(t *testing.T) {
	for name, interrupt := range map[string]func(*restore.Config) (context.Context, func()){
		"stop": func(c *restore.Config) (context.Context, func()) {
			stop := make(chan struct{})
			c.Stop = stop
			return t.Context(), sync.OnceFunc(func() { close(stop) })
		},
		"death": func(*restore.Config) (context.Context, func()) {
			ctx, cancel := context.WithCancel(t.Context())
			return ctx, cancel
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.Start(t)
			b, items := newWaitingPair()
			b.items[1].Labels = map[string]string{"no": "x"} // the Secret is restored only because it is asked for
			var end func()
			w := waitingAction(0, items, func(context.Context, []action.Item) (bool, error) { end(); return false, nil })
			clk := clocktesting.NewFakeClock(begun)
			f := runAt(t, clk, s, b, selected, withActions(t, w), func(c *restore.Config) {
				first := *c
				var ctx context.Context
				ctx, end = interrupt(&first)
				err := restore.Run(ctx, first)
				require.Error(t, err)
				require.True(t, errors.Is(err, dispatch.ErrStopped) || errors.Is(err, context.Canceled), err)
				require.NotNil(t, s.Object("/api/v1/namespaces/a/secrets/s"))
				require.Nil(t, s.Object("/api/v1/namespaces/a/configmaps/c"))
				require.Equal(t, outcome.Counts{Total: 2, Done: 1}, c.Recorder.Counts())
				w.ready = func(context.Context, []action.Item) (bool, error) { return true, nil }
				c.History = &outcome.History{Resumed: true}
			})
			require.Equal(t, map[string][]string{"v1/ConfigMap": {"a/c(created)"}, "v1/Secret": {"a/s(created)"}}, f.list)
			require.Equal(t, outcome.Counts{Total: 2, Done: 2}, f.recorder.Counts())
			require.Len(t, s.Requests("POST /api/v1/namespaces/a/secrets"), 1)
			require.Len(t, s.Requests("POST /api/v1/namespaces/a/configmaps"), 1)
		})
	}
}

// A Secret comes after the ServiceAccounts of its namespace: the account of which it is an
// additional item does not wait for it. When the holder dies between the two, the successor does
// not call the action for the account again, and restores the Secret nevertheless.
func TestASuccessorRestoresWhatWasAskedForByOneThatIsDone(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("serviceaccounts", "v1", "ServiceAccount", "a", "sa", nil)
	b.addObject("secrets", "v1", "Secret", "a", "s", object{"metadata": object{"labels": object{"no": "x"}}})
	x := additionalAction("a.io/x", map[string][]action.Item{"ServiceAccount a/sa": {secretS}})
	f := runRestore(t, s, b, selected, withActions(t, x), func(c *restore.Config) {
		replayRecords(t, c, runFirstOwner(t, c, func(ctx context.Context, die func(), own *restore.Config) {
			s.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if ctx.Err() == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/secrets") {
					die()
					return http.StatusServiceUnavailable, false
				}
				return 0, false
			})
			require.ErrorIs(t, restore.Run(ctx, *own), context.Canceled)
			require.Equal(t, outcome.Counts{Total: 2, Done: 1, Warnings: 1}, own.Recorder.Counts())
		}))
	})
	require.Equal(t, map[string][]string{"v1/ServiceAccount": {"a/sa(created)"}, "v1/Secret": {"a/s(created)"}}, f.list)
	require.Equal(t, outcome.Counts{Total: 2, Done: 2, Warnings: 1}, f.recorder.Counts())
	require.Equal(t, 1, x.timesCalled("ServiceAccount a/sa"))
}

// A namespace that only an additional item needs, and that existed before, does not belong to the
// restore: a successor does not give it the owners that it has in the backup.
func TestASuccessorLeavesANamespaceAloneThatWasThere(t *testing.T) {
	for name, tt := range map[string]struct {
		manager string
		action  string
		owners  int
	}{
		"before the restore": {"someone", "skipped", 0},
		"by it":              {"holdfast-restore-" + string(restoreUID), "created", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := kubetest.Start(t), &backup{}
			no := object{"metadata": object{"labels": object{"no": "x"}}}
			b.addObject("persistentvolumes", "v1", "PersistentVolume", "", "owner", nil)
			b.addObject("configmaps", "v1", "ConfigMap", "a", "c", nil)
			b.addObject("secrets", "v1", "Secret", "quiet", "s", no)
			b.addObject("namespaces", "v1", "Namespace", "", "quiet", no, ownerBy("v1", "PersistentVolume", "owner", false))
			s.Put("/api/v1/namespaces/quiet", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
				"name": "quiet", "uid": "of-today", "resourceVersion": "1",
				"managedFields": []any{object{"manager": tt.manager, "operation": "Update"}}}})
			x := additionalAction("a.io/x", map[string][]action.Item{"ConfigMap a/c": {{GroupResource: secrets, Namespace: "quiet", Name: "s"}}})
			f := runRestore(t, s, b, selected, withActions(t, x), func(c *restore.Config) {
				c.History = &outcome.History{Resumed: true}
			})
			require.Equal(t, []string{"quiet(" + tt.action + ")"}, f.list["v1/Namespace"])
			require.Equal(t, []string{"quiet/s(created)"}, f.list["v1/Secret"])
			owners, _ := kubetest.Meta(s.Object("/api/v1/namespaces/quiet"))["ownerReferences"].([]any)
			require.Len(t, owners, tt.owners)
		})
	}
}

// A process that was paused for so long that another has taken over may not put objects to actions
// when it wakes up.
func TestNoActionIsCalledWithoutTheClaim(t *testing.T) {
	s := kubetest.Start(t)
	b, _ := newWaitingPair()
	x := additionalAction("a.io/x", nil)
	lost := errors.New("claim lost")
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, x), func(c *restore.Config) {
		ctx, lose := context.WithCancelCause(t.Context())
		first := *c
		first.Confirm = func(context.Context) error {
			if s.Object("/api/v1/namespaces/a") == nil {
				return nil
			}
			lose(lost)
			return lost
		}
		require.ErrorIs(t, restore.Run(ctx, first), lost)
		require.Empty(t, x.seen)
		require.Zero(t, c.Recorder.Counts().Done)
	})
	require.Equal(t, 2, f.recorder.ByAction()["created"])
}

func TestManyThatWaitDoSoInFiles(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	b.addObject("secrets", "v1", "Secret", "a", "s", nil)
	items := map[string][]action.Item{}
	for i := range 12 {
		name := fmt.Sprintf("big%02d", i)
		b.addObject("configmaps", "v1", "ConfigMap", "a", name, object{"data": object{"k": strings.Repeat("x", 1<<20)}})
		items["ConfigMap a/"+name] = []action.Item{secretS}
	}
	dir := t.TempDir()
	most := 0
	var mu sync.Mutex
	w := waitingAction(0, items, func(context.Context, []action.Item) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		files, err := filepath.Glob(filepath.Join(dir, "waiting-*.json"))
		assert.NoError(t, err)
		most = max(most, len(files))
		return most >= 4, nil
	})
	f := runRestore(t, s, b, velerov1.RestoreSpec{}, withActions(t, w), func(c *restore.Config) { c.Dir = dir })
	require.Empty(t, f.results.Errors.allMessages())
	require.Equal(t, 13, f.recorder.ByAction()["created"])
	for i := range 12 {
		require.Len(t, s.Object(fmt.Sprintf("/api/v1/namespaces/a/configmaps/big%02d", i))["data"].(object)["k"], 1<<20)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, files)
}
