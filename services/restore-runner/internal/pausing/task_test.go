package pausing_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

type object = map[string]any

const widgetPath = "/apis/example.com/v1/namespaces/a/widgets/w"

// bed is a cluster with a paused Widget, and the bucket with the records for its resumption.
type bed struct {
	cluster *kubetest.Server
	client  client.Client
	clock   *clocktesting.FakeClock
	store   *memstore.Store
	away    error // of the location
	opened  int
	free    bool
	task    *pausing.Task
}

func (b *bed) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	return &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (b *bed) Open(_ context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	b.opened++
	if loc.Name != "default" {
		return nil, objectstore.ErrNoBucket
	}
	return b.store, b.away
}

// newBed has a Restore that ended a minute ago with the mark, as change makes it.
func newBed(t *testing.T, change func(*velerov1.Restore)) *bed {
	t.Helper()
	b := &bed{cluster: kubetest.Start(t), clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), free: true}
	b.store = storeRecords(t, recordPauses("w"))
	b.cluster.Serve("example.com/v1", "widgets", "Widget", true)
	b.cluster.Put(widgetPath, object{"apiVersion": "example.com/v1", "kind": "Widget", "spec": object{"size": 1.0, "paused": true}, "metadata": object{
		"name": "w", "namespace": "a", "managedFields": []any{object{"manager": "holdfast-restore-uid-r", "operation": "Update"}}}})
	o := theRestore.DeepCopy()
	o.Finalizers = []string{velerov1.RestoreFinalizer}
	o.Status.Phase = velerov1.RestorePhaseFailed
	at := metav1.NewTime(b.clock.Now().Add(-time.Minute))
	o.Status.CompletionTimestamp = &at
	require.NoError(t, mark.SetPaused(o, "default"))
	change(o)
	deleted := o.DeletionTimestamp != nil
	o.DeletionTimestamp = nil
	b.client = fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(o).Build()
	if deleted {
		require.NoError(t, b.client.Delete(t.Context(), o))
	}
	b.task = &pausing.Task{
		Resumer: pausing.Resumer{Locations: b, REST: b.cluster.Config(), Clock: b.clock},
		Reader:  b.client, Cached: b.client, Client: b.client, Namespace: "velero", Log: slog.New(slog.DiscardHandler),
		Free: func(*velerov1.Restore) bool { return b.free },
	}
	return b
}

func leaveUnchanged(*velerov1.Restore) {}

func inProgress(o *velerov1.Restore) {
	o.Status.Phase, o.Status.CompletionTimestamp = velerov1.RestorePhaseInProgress, nil
}

func markDeleted(o *velerov1.Restore) {
	inProgress(o)
	o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
}

func (b *bed) requireResumed(t *testing.T, resumed bool) {
	t.Helper()
	o := &velerov1.Restore{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "r"}, o))
	want := object{"size": 1.0, "paused": true}
	if resumed {
		want = object{"size": 1.0}
	}
	require.Equal(t, want, b.cluster.Object(widgetPath)["spec"])
	require.Equal(t, resumed, mark.PausedLocation(o) == "", "the mark")
}

// What a restore left paused when it ended without its records, or that is deleted while no runner
// holds it, is resumed all the same.
func TestWhatARestoreLeftPausedIsResumed(t *testing.T) {
	for name, change := range map[string]func(*velerov1.Restore){"ended": leaveUnchanged, "deleted": markDeleted} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, change)
			b.task.Pass(t.Context())
			b.requireResumed(t, true)
			opened := b.opened
			b.task.Pass(t.Context())
			require.Equal(t, opened, b.opened, "there is nothing left to do")
		})
	}
}

func TestWhatIsARunnersIsLeftAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		free   bool
		change func(*velerov1.Restore)
	}{
		"in progress":          {true, inProgress},
		"deleted, with holder": {false, markDeleted},
		"ended just now": {true, func(o *velerov1.Restore) {
			o.Status.CompletionTimestamp.Time = o.Status.CompletionTimestamp.Add(31 * time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, tt.change)
			b.free = tt.free
			b.task.Pass(t.Context())
			b.requireResumed(t, false)
			require.Zero(t, b.opened)
		})
	}
}

func TestResumingIsTriedAgain(t *testing.T) {
	for name, fail := range map[string]func(b *bed, on bool){
		"bucket away": func(b *bed, on bool) {
			b.away = nil
			if on {
				b.away = errors.New("no route")
			}
		},
		"API server refuses": func(b *bed, on bool) {
			b.cluster.Fail(func(r *http.Request, _ map[string]any) (int, bool) {
				if on && r.Method == http.MethodPatch {
					return http.StatusForbidden, false
				}
				return 0, false
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, leaveUnchanged)
			fail(b, true)
			for i, pause := range []time.Duration{0, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
				if i > 0 {
					b.clock.Step(pause - time.Nanosecond)
					b.task.Pass(t.Context())
					require.Equal(t, i, b.opened, "it rests")
					b.clock.Step(time.Nanosecond)
				}
				b.task.Pass(t.Context())
				require.Equal(t, i+1, b.opened)
				b.requireResumed(t, false)
			}
			fail(b, false)
			b.clock.Step(10 * time.Minute)
			b.task.Pass(t.Context())
			b.requireResumed(t, true)
		})
	}
}

// Without records the objects can never be resumed.
func TestWithoutRecordsTheMarkGoes(t *testing.T) {
	b := newBed(t, leaveUnchanged)
	b.store = memstore.New()
	b.task.Pass(t.Context())
	o := &velerov1.Restore{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "r"}, o))
	require.Empty(t, mark.PausedLocation(o))
}
