package job

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/count"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "velero"

// locations serves one store under the name "default".
type locations struct{ store objectstore.Store }

func (l locations) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	return &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (l locations) Open(_ context.Context, bsl *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	if bsl.Name != "default" {
		return nil, errors.New("config.path: is empty")
	}
	return l.store, nil
}

type events struct {
	mu     sync.Mutex
	phases []string
}

func (e *events) PublishEvent(_ context.Context, ev *eventv1.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phases = append(e.phases, ev.GetPhase())
	return nil
}

// world is a runner with everything around it. What is changed of it holds for what runs
// afterwards.
type world struct {
	Config
	// Client is what the runner writes objects with, Instance what it claims with.
	Client   client.Client
	Instance engine.Instance
	api      *kubetest.Server
	client   client.WithWatch
	store    *memstore.Store
	instance *jobtest.Holder
	events   *events
	registry *prometheus.Registry
	cancels  *jobtest.Cancels
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{store: memstore.New(), instance: &jobtest.Holder{Name: "me"}, events: &events{}, registry: prometheus.NewRegistry(), cancels: &jobtest.Cancels{}}
	w.api = kubetest.New(
		kubetest.Kind{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespaced: true},
		kubetest.Kind{Version: "v1", Kind: "Namespace", Resource: "namespaces"},
		kubetest.Kind{Version: "v1", Kind: "Pod", Resource: "pods", Namespaced: true},
		kubetest.Kind{Version: "v1", Kind: "PersistentVolumeClaim", Resource: "persistentvolumeclaims", Namespaced: true},
		kubetest.Kind{Version: "v1", Kind: "PersistentVolume", Resource: "persistentvolumes"},
	)
	w.api.Add("namespaces", kubetest.Object{Name: "a"})
	for i := range 50 {
		w.api.Add("configmaps", kubetest.Object{Namespace: "a", Name: fmt.Sprintf("cm-%02d", i)})
	}
	srv := httptest.NewServer(w.api)
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	source, err := cut.NewCluster(&rest.Config{Host: srv.URL, QPS: -1}, clock.RealClock{}, t.TempDir())
	require.NoError(t, err)
	w.client = fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-1"}},
		&velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daily"}}).Build()
	counts, err := count.NewBackups(count.NewSchedules(w.registry, w.client, namespace))
	require.NoError(t, err)
	w.Client, w.Instance = w.client, w.instance
	w.Config = Config{
		Reader: w.client,
		Ledger: ledger.New(w.client, w.client, namespace), Locations: locations{w.store}, Cluster: source, Events: w.events,
		Counts: counts, Clock: fastClock{}, Log: slog.New(slog.DiscardHandler), Operations: w.cancels.Canceller(),
		WorkDir: t.TempDir(), ConsistentCut: true, Workers: 4, PartBytes: 8 << 20, PartItems: 20, BlockWorkers: 1, StorePatience: time.Minute,
	}
	return w
}

// anotherRunner is a second runner of the same cluster and bucket, under another name.
func (w *world) anotherRunner(t *testing.T, name string) *world {
	t.Helper()
	next := *w
	next.instance, next.WorkDir = &jobtest.Holder{Name: name}, t.TempDir()
	next.Instance = next.instance
	return &next
}

// newEngine is that of the runner as it is now.
func (w *world) newEngine() *engine.Engine[*velerov1.Backup] {
	return engine.New(engine.Config[*velerov1.Backup]{
		Service: Service, ObjectKind: "Backup", Kind: New(w.Config), New: func() *velerov1.Backup { return &velerov1.Backup{} },
		NewList: func() client.ObjectList { return &velerov1.BackupList{} }, Reader: w.Reader, Cached: w.client, Client: w.Client,
		Namespace: namespace, Instance: w.Instance, Concurrency: 1, Grace: GracePeriod, Cancellable: true, Clock: w.Clock, Log: w.Log,
	})
}

// Run works on a backup as a runner that found it.
func (w *world) Run(ctx context.Context, name string, uid types.UID) error {
	return w.newEngine().Run(ctx, name, uid)
}

// Handle works on a backup as a runner that got this hint.
func (w *world) Handle(ctx context.Context, hint *workv1.Hint) messaging.Outcome {
	return w.newEngine().Handle(ctx, hint)
}

type fastClock struct{ clock.RealClock }

func (fastClock) NewTimer(d time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(d / 1000) }

// admitBackup adds a Backup that the scheduler made ready.
func (w *world) admitBackup(t *testing.T, name string, adjust ...func(*velerov1.Backup)) *velerov1.Backup {
	t.Helper()
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-" + "1"}}
	b.Spec.StorageLocation = "default"
	b.Status.Phase = velerov1.BackupPhaseReadyToStart
	for _, f := range adjust {
		f(b)
	}
	require.NoError(t, w.client.Create(t.Context(), b))
	require.NoError(t, jobtest.Admit(t.Context(), ledger.New(w.client, w.client, namespace), ledger.Entry{
		UID: b.UID, Kind: ledger.KindBackup, Namespace: namespace, Name: name, Namespaces: []string{"*"}, Since: time.Unix(1, 0)}, ledger.Limits{}))
	return b
}

func (w *world) readBackup(t *testing.T, b *velerov1.Backup) *velerov1.Backup {
	t.Helper()
	out := &velerov1.Backup{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(b), out))
	return out
}

// requireComplete checks a finished backup in the bucket and in the cluster.
func (w *world) requireComplete(t *testing.T, b *velerov1.Backup, phase velerov1.BackupPhase) *velerov1.Backup {
	t.Helper()
	got := w.readBackup(t, b)
	require.Equal(t, phase, got.Status.Phase, got.Status.FailureReason)
	require.NotNil(t, got.Status.CompletionTimestamp)
	require.Equal(t, []string{
		layout.BackupItemOperations(b.Name), layout.BackupLog(b.Name), layout.BackupPodVolumeBackups(b.Name),
		layout.BackupResourceList(b.Name), layout.BackupResults(b.Name), layout.BackupVolumeInfo(b.Name),
		layout.BackupVolumeSnapshots(b.Name), layout.BackupTarball(b.Name), layout.OwnerFile(b.Name), layout.BackupManifest(b.Name), layout.BackupMetadata(b.Name),
	}, w.store.Keys(), "the files of a backup and nothing else")
	data, _ := w.store.Bytes(layout.BackupMetadata(b.Name))
	var committed velerov1.Backup
	require.NoError(t, json.Unmarshal(data, &committed))
	require.Equal(t, got.Status, committed.Status, "bucket and object agree")
	require.Equal(t, "Backup", committed.Kind)
	return got
}

func (w *world) readDocument(t *testing.T, key string) string {
	t.Helper()
	data, ok := w.store.Bytes(key)
	require.True(t, ok, key)
	zr, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	out, err := io.ReadAll(zr)
	require.NoError(t, err)
	return string(out)
}

// What gauges of sizes are derived from.
func TestTheSizeOfTheTarballIsNoted(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	tarball, ok := w.store.Bytes(layout.BackupTarball("b1"))
	require.True(t, ok)
	require.Equal(t, strconv.Itoa(len(tarball)), got.Annotations[holdfast.AnnotationTarballBytes])

	w = newWorld(t)
	b = w.admitBackup(t, "b1")
	w.beforeObject("/composition", func() { w.requestCancel(t, b, true) })
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
	require.NotContains(t, w.readBackup(t, b).Annotations, holdfast.AnnotationTarballBytes, "it has none")
}

func TestBackupCompletes(t *testing.T) {
	w := newWorld(t)
	w.api.Add("persistentvolumeclaims", kubetest.Object{Namespace: "a", Name: "data", Body: map[string]any{"spec": map[string]string{"volumeName": "pv1"}}})
	b := w.admitBackup(t, "b1", func(b *velerov1.Backup) { b.Labels = map[string]string{velerov1.LabelScheduleName: "daily"} })
	out := w.Handle(t.Context(), &workv1.Hint{Kind: "Backup", Namespace: namespace, Name: "b1", Uid: string(b.UID)})
	require.Zero(t, out)
	got := w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	require.Equal(t, &velerov1.BackupProgress{TotalItems: 52, ItemsBackedUp: 52}, got.Status.Progress)
	require.Equal(t, 1, got.Status.Version)
	require.Equal(t, 1, got.Status.Warnings, "one claim without data")
	require.Equal(t, "null\n", w.readDocument(t, layout.BackupVolumeSnapshots("b1")))
	require.Equal(t, "null\n", w.readDocument(t, layout.BackupPodVolumeBackups("b1")))
	require.Equal(t, "[]\n", w.readDocument(t, layout.BackupItemOperations("b1")))
	require.JSONEq(t, `[{"pvcName":"data","pvcNamespace":"a","pvName":"pv1","snapshotDataMoved":false,"preserveLocalSnapshot":false,"skipped":true,
		"skippedReason":"no way to take the data of this volume is available: only the objects were backed up"}]`, w.readDocument(t, layout.BackupVolumeInfo("b1")))
	var list map[string][]string
	require.NoError(t, json.Unmarshal([]byte(w.readDocument(t, layout.BackupResourceList("b1"))), &list))
	require.Len(t, list["v1/ConfigMap"], 50)
	require.Equal(t, []string{"a"}, list["v1/Namespace"])
	require.Equal(t, []string{"InProgress", "Completed"}, w.events.phases)
	require.Contains(t, w.readMetrics(t), `velero_backup_success_total{schedule="daily"} 1`)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID), "a hint that comes again finds nothing to do")
}

func (w *world) readMetrics(t *testing.T) string {
	t.Helper()
	families, err := w.registry.Gather()
	require.NoError(t, err)
	var out strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if c := m.GetCounter(); c != nil {
				fmt.Fprintf(&out, "%s{%s=%q} %g\n", f.GetName(), m.GetLabel()[0].GetName(), m.GetLabel()[0].GetValue(), c.GetValue())
			}
		}
	}
	return out.String()
}

func TestNothingToDo(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.Run(t.Context(), "absent", "uid-9"))
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", "uid-of-an-older-object"))
	require.NoError(t, ledger.New(w.client, w.client, namespace).Withdraw(t.Context(), ledger.Entry{UID: b.UID, Since: time.Unix(1, 0)}))
	require.NoError(t, w.Run(t.Context(), "b1", b.UID), "not admitted")
	require.Equal(t, velerov1.BackupPhaseReadyToStart, w.readBackup(t, b).Status.Phase)
	require.Empty(t, w.store.Keys())
}

func TestNameTaken(t *testing.T) {
	foreign := layout.Owner{BackupUID: "uid-7", ClusterUID: "cluster-2"}
	data, err := foreign.Encode()
	require.NoError(t, err)
	// Two installations in one cluster may share a bucket.
	elsewhere := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "b1", UID: "uid-0"}}
	elsewhere.Status.Phase = velerov1.BackupPhaseInProgress
	living, err := layout.Owner{BackupUID: "uid-0", ClusterUID: "cluster-1"}.Encode()
	require.NoError(t, err)
	for name, taken := range map[string][2]string{
		"metadata of Velero": {layout.BackupMetadata("b1"), `{"kind":"Backup","metadata":{"name":"b1","uid":"other"}}`},
		"broken metadata":    {layout.BackupMetadata("b1"), `{`},
		"another cluster":    {layout.OwnerFile("b1"), string(data)},
		"no owner file":      {layout.OwnerFile("b1"), "x"},
		"a living backup":    {layout.OwnerFile("b1"), string(living)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, w.client.Create(t.Context(), elsewhere.DeepCopy()))
			w.store.Set(taken[0], []byte(taken[1]))
			b := w.admitBackup(t, "b1")
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Equal(t, "backup already exists in object storage", got.Status.FailureReason)
			require.NotNil(t, got.Status.CompletionTimestamp)
			require.Equal(t, []string{taken[0]}, w.store.Keys(), "nothing was written beside it")
		})
	}
}

func TestLeftoversOfADeadBackupAreSwept(t *testing.T) {
	w := newWorld(t)
	data, err := layout.Owner{BackupUID: "uid-0", ClusterUID: "cluster-1"}.Encode()
	require.NoError(t, err)
	w.store.Set(layout.OwnerFile("b1"), data)
	w.store.Set(layout.Part("b1", "uid-0", 1, "w0", 1, 1), []byte("x"))
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}

// unreachable is a location whose server cannot be found.
type unreachable struct{ locations }

func (unreachable) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	return nil, fmt.Errorf("find the region: %w", &net.DNSError{Err: "no such host", Name: "nowhere.invalid", IsNotFound: true})
}

func TestABucketThatCannotBeUsedFailsTheBackup(t *testing.T) {
	refuse := func(err error, within string) func(w *world) {
		return func(w *world) {
			w.store.Inject(func(op memstore.Op, key string) error {
				if (op == memstore.OpCreate || op == memstore.OpPut) && strings.Contains(key, within) {
					return err
				}
				return nil
			})
		}
	}
	for name, tt := range map[string]struct {
		location string
		spoil    func(w *world)
		reason   string
		recorded bool // the bucket has the failure too
	}{
		"unreachable":       {"default", func(w *world) { w.Locations = unreachable{locations{w.store}} }, "no such host", false},
		"unknown or broken": {"broken", func(*world) {}, "config.path", false},
		"read-only":         {"default", refuse(objectstore.ErrReadOnly, ""), objectstore.ErrReadOnly.Error(), false},
		"refuses parts":     {"default", refuse(objectstore.ErrAccess, "/parts/"), objectstore.ErrAccess.Error(), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.StorePatience = time.Second
			tt.spoil(w)
			b := w.admitBackup(t, "b1", func(b *velerov1.Backup) { b.Spec.StorageLocation = tt.location })
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			got := w.readBackup(t, b)
			require.Equal(t, velerov1.BackupPhaseFailed, got.Status.Phase)
			require.Contains(t, got.Status.FailureReason, tt.reason)
			data, ok := w.store.Bytes(layout.BackupMetadata("b1"))
			require.Equal(t, tt.recorded, ok)
			if tt.recorded {
				require.Contains(t, string(data), `"Failed"`)
				require.Contains(t, w.readDocument(t, layout.BackupLog("b1")), "Backup failed")
			}
		})
	}
}

func TestHeldByALiveInstance(t *testing.T) {
	w := newWorld(t)
	w.instance.Alive = map[string]bool{"other": true}
	b := w.admitBackup(t, "b1", func(b *velerov1.Backup) {
		b.Status.Phase = velerov1.BackupPhaseInProgress
		require.NoError(t, claim.Set(b, claim.Claim{Owner: "other", Epoch: 3}))
	})
	var held *claim.HeldError
	require.ErrorAs(t, w.Run(t.Context(), "b1", b.UID), &held)
	require.Zero(t, w.Handle(t.Context(), &workv1.Hint{Kind: "Backup", Namespace: namespace, Name: "b1", Uid: string(b.UID)}), "acknowledged")
}

// abandonBackup makes a backup whose holder died.
func abandonBackup(b *velerov1.Backup) {
	start := metav1.NewTime(time.Unix(1700000000, 0))
	b.Status.Phase, b.Status.StartTimestamp = velerov1.BackupPhaseInProgress, &start
	_ = claim.Set(b, claim.Claim{Owner: "dead", Epoch: 1})
}

func TestBucketAwayForAMoment(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	var mu sync.Mutex
	failed := map[string]bool{}
	w.store.Inject(func(op memstore.Op, key string) error {
		mu.Lock()
		defer mu.Unlock()
		id := string(op) + key
		if failed[id] || op == memstore.OpRead {
			return nil
		}
		failed[id] = true
		return errors.New("connection refused")
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}

func TestShutdownHandsOver(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	ctx, cancel := context.WithCancel(t.Context())
	w.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpCompose {
			cancel()
		}
		return nil
	})
	out := w.Handle(ctx, &workv1.Hint{Kind: "Backup", Namespace: namespace, Name: "b1", Uid: string(b.UID)})
	require.NotZero(t, out, "the hint is delivered again")
	c, _, err := claim.Parse(w.readBackup(t, b))
	require.NoError(t, err)
	require.Equal(t, claim.Claim{Epoch: 1}, c, "the claim is free")
	w.store.Inject(nil)
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}

func TestServerAwayWhileTheEndIsWritten(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	var failures atomic.Int32
	w.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, opts ...client.PatchOption) error {
			if data, err := p.Data(obj); err == nil && bytes.Contains(data, []byte("Completed")) && failures.Add(1) <= 3 {
				return &timeoutError{}
			}
			return c.Patch(ctx, obj, p, opts...)
		},
	})
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.GreaterOrEqual(t, failures.Load(), int32(3))
	w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
}

// timeoutError is a net.Error.
type timeoutError struct{}

func (*timeoutError) Error() string   { return "i/o timeout" }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return true }

// Catches a sweep that continues after an error: it would remove the owner file while objects of
// the dead backup are left, which then belong to no backup and are never removed.
func TestADirectoryThatCannotBeSweptKeepsItsOwnerFile(t *testing.T) {
	for _, failing := range []memstore.Op{memstore.OpList, memstore.OpDelete} {
		t.Run(string(failing), func(t *testing.T) {
			w := newWorld(t)
			w.StorePatience = 0
			data, err := layout.Owner{BackupUID: "uid-0", ClusterUID: "cluster-1"}.Encode()
			require.NoError(t, err)
			w.store.Set(layout.OwnerFile("b1"), data)
			part := layout.Part("b1", "uid-0", 1, "w0", 1, 1)
			w.store.Set(part, []byte("x"))
			w.store.Inject(func(op memstore.Op, key string) error {
				if op == failing && key != layout.OwnerFile("b1") {
					return errors.New("the bucket refuses")
				}
				return nil
			})
			b := w.admitBackup(t, "b1")
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Contains(t, w.store.Keys(), layout.OwnerFile("b1"))
			require.Contains(t, w.store.Keys(), part)
			require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
		})
	}
}
