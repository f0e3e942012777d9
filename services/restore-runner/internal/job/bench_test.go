package job_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

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
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// config is what a runner is made of.
type config struct {
	job.Config
	Client client.Client
	Claims *jobtest.Holder
	// Concurrency is 2 unless it is set.
	Concurrency int
}

// runner is one process: the kind, and the engine that runs it.
type runner struct {
	*engine.Engine[*velerov1.Restore]
	bus *jobtest.Bus
}

func newRunner(c config) *runner {
	bus := jobtest.NewBus()
	c.Config.Client = c.Client
	return &runner{bus: bus, Engine: engine.New(engine.Config[*velerov1.Restore]{
		Service: "restore-runner", ObjectKind: "Restore", Kind: job.New(c.Config),
		New: func() *velerov1.Restore { return &velerov1.Restore{} }, NewList: func() client.ObjectList { return &velerov1.RestoreList{} },
		Reader: c.Reader, Cached: c.Reader, Client: c.Client, Namespace: c.Namespace, Instance: c.Claims, Bus: bus,
		Work: messaging.WorkRestoreRun, Concurrency: cmp.Or(c.Concurrency, 2), Grace: job.Grace, Cancellable: true, Clock: c.Clock, Log: c.Log,
	})}
}

// Run is that of the engine; a live holder is as good as nothing to do.
func (r *runner) Run(ctx context.Context, name string, uid types.UID) error {
	err := r.Engine.Run(ctx, name, uid)
	var held *claim.HeldError
	if errors.As(err, &held) {
		return nil
	}
	return err
}

// store keeps the bucket when a job closes its view of it.
type store struct{ objectstore.Store }

func (store) Close() error { return nil }

// locations opens the bucket of the backup, which is that of the default location unless another is.
type locations struct {
	store  objectstore.Store
	other  objectstore.Store // of location "other", which is the default unless it is nil
	phase  velerov1.BackupStorageLocationPhase
	err    error
	failed func() // called when opening fails
	mode   velerov1.BackupStorageLocationAccessMode
}

func (l *locations) Get(_ context.Context, name string) (*velerov1.BackupStorageLocation, error) {
	loc := &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{Name: name}}
	loc.Spec.AccessMode, loc.Status.Phase = l.mode, l.phase
	return loc, nil
}

func (l *locations) Default(ctx context.Context) (*velerov1.BackupStorageLocation, error) {
	if l.other != nil {
		return l.Get(ctx, "other")
	}
	return l.Get(ctx, "default")
}

func (l *locations) Open(_ context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	if loc.Name == "other" {
		return store{l.other}, nil
	}
	if l.err != nil && l.failed != nil {
		l.failed()
	}
	return store{l.store}, l.err
}

// bench is a Runner between a fake of the server's own objects, a fake cluster to restore to, and a
// bucket in memory.
type bench struct {
	client    client.Client
	cluster   *kubetest.Server
	store     *memstore.Store
	locations *locations
	claims    *jobtest.Holder
	ledger    *ledger.Ledger
	registry  *prometheus.Registry
	config    config
	runner    *runner
	cleaner   cleaner
	cancels   jobtest.Cancels
	mu        sync.Mutex
	ended     []velerov1.RestorePhase
	started   []string // Pods whose containers run once they are read
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(
			&velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "nightly"}}).Build(),
		cluster: kubetest.Start(t), store: memstore.New(), claims: &jobtest.Holder{Name: "me", Alive: map[string]bool{"alive": true}}, registry: prometheus.NewRegistry(),
	}
	b.locations = &locations{store: b.store}
	b.ledger = ledger.New(b.client, b.client, "velero")
	counts, err := job.NewMetrics(b.registry, count.NewSchedules(b.registry, b.client, "velero"))
	require.NoError(t, err)
	b.config = config{Client: b.client, Claims: b.claims, Config: job.Config{
		Reader: b.client, Namespace: "velero", Cleaner: &b.cleaner, Ledger: b.ledger, Locations: b.locations,
		REST: b.cluster.Config(), Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: counts, WorkDir: t.TempDir(),
		TerminatingTimeout: 5 * time.Second, ResourceTimeout: 5 * time.Second, StorePatience: time.Minute,
		Operations: b.cancels.Canceller(),
		Ended: func(_ context.Context, o *velerov1.Restore) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.ended = append(b.ended, o.Status.Phase)
		},
	}}
	b.runner = newRunner(b.config)
	require.NoError(t, b.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid-cluster"}}))
	require.NoError(t, b.client.Create(t.Context(), &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", Labels: map[string]string{velerov1.LabelScheduleName: "nightly"}},
		Spec:       velerov1.BackupSpec{StorageLocation: "default"},
	}))
	return b
}

// storeTarball stores n ConfigMaps as Velero's backup b.
func (b *bench) storeTarball(t *testing.T, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	add := func(name string, body []byte) {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Size: int64(len(body)), Mode: 0o755, Typeflag: tar.TypeReg}))
		_, err := archive.Write(body)
		require.NoError(t, err)
	}
	add("metadata/version", []byte("1.1.0\n"))
	for i := range n {
		name := fmt.Sprintf("c%03d", i)
		body, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"k": name},
			"metadata": map[string]any{"name": name, "namespace": "a", "uid": "old-" + name}})
		require.NoError(t, err)
		add("resources/configmaps/namespaces/a/"+name+".json", body)
		add("resources/configmaps/v1-preferredversion/namespaces/a/"+name+".json", body)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zip.Close())
	require.NoError(t, objectstore.PutBytes(t.Context(), b.store, layout.BackupTarball("b"), out.Bytes()))
	return out.Bytes()
}

// createRestore makes a Restore of backup b.
func (b *bench) createRestore(t *testing.T, admitted bool, change ...func(*velerov1.Restore)) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: types.UID("uid-r")},
		Spec:       velerov1.RestoreSpec{BackupName: "b"},
	}
	for _, c := range change {
		c(restore)
	}
	require.NoError(t, b.client.Create(t.Context(), restore))
	if admitted {
		require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{UID: restore.UID, Kind: ledger.KindRestore, Namespace: "velero",
			Name: "r", Namespaces: []string{ledger.All}, Since: time.Now()}, ledger.Limits{}))
	}
	return restore
}

// getRestore reads the Restore as it is now.
func (b *bench) getRestore(t *testing.T) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: "r"}, restore))
	return restore
}

// readGzip reads a gzip file of the bucket.
func (b *bench) readGzip(t *testing.T, key string) string {
	t.Helper()
	body, err := b.store.Get(t.Context(), key)
	require.NoError(t, err)
	defer func() { require.NoError(t, body.Close()) }()
	zip, err := gzip.NewReader(body)
	require.NoError(t, err)
	out, err := io.ReadAll(zip)
	require.NoError(t, err)
	return string(out)
}
