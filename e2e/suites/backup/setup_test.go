// Package backup tries the backup-runner alone on a real API server: the test admits backups
// itself, as the queue-scheduler would.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	holdfast "github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/app"
)

const server = "velero"

// bed is a cluster with one location, and runners on demand.
type bed struct {
	*testbed.Cluster
	client client.Client
	bucket string // directory
	nats   string
	runner string // gRPC address of the runner that was started last
}

func newBed(t *testing.T, options ...func(*testbed.Config)) *bed {
	t.Helper()
	b := &bed{Cluster: testbed.StartT(t, options...), nats: testbed.StartNATST(t), bucket: t.TempDir()}
	require.NoError(t, crds.Install(t.Context(), b.RestConfig()))
	c, err := client.New(b.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b.client = c
	b.createObject(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: server}})
	location := &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "default"},
		Spec: velerov1.BackupStorageLocationSpec{Provider: holdfast.ProviderFile, Default: true,
			Config: map[string]string{"path": b.bucket}},
	}
	location.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: "backups"}
	b.createObject(t, location)
	require.NoError(t, os.MkdirAll(filepath.Join(b.bucket, "backups"), 0o700))
	return b
}

func (b *bed) createObject(t *testing.T, o client.Object) {
	t.Helper()
	require.NoError(t, b.client.Create(t.Context(), o))
}

// startRunner starts a backup-runner; the returned function stops it and waits.
func (b *bed) startRunner(t *testing.T, adjust ...func(*app.Config)) (stop func()) {
	t.Helper()
	options := service.Defaults(app.Name, service.Ports{})
	options.Kubeconfig, options.Namespace, options.NATSURL = b.Kubeconfig(), server, b.nats
	options.WorkDir = t.TempDir()
	config := service.NewConfig[app.Config]()
	config.Base = service.Base{
		Name: app.Name, Instance: service.NewInstance(app.Name), Options: options,
		Log:   slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
		Clock: clock.RealClock{}, Tracer: noop.NewTracerProvider(),
	}
	for _, f := range adjust {
		f(&config)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a, err := app.New(ctx, config)
	require.NoError(t, err)
	b.runner = a.Runtime().GRPCAddr()
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("runner ended with %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// admitBackup creates a Backup and makes it ready, as the scheduler does.
func (b *bed) admitBackup(t *testing.T, name string, spec velerov1.BackupSpec, namespaces ...string) *velerov1.Backup {
	t.Helper()
	spec.StorageLocation = "default"
	return b.admit(t, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name}, Spec: spec}, namespaces...)
}

func (b *bed) admit(t *testing.T, backup *velerov1.Backup, namespaces ...string) *velerov1.Backup {
	t.Helper()
	b.createObject(t, backup)
	l := ledger.New(b.client, b.client, server)
	require.NoError(t, jobtest.Admit(t.Context(), l, ledger.Entry{UID: backup.UID, Kind: ledger.KindBackup, Namespace: server,
		Name: backup.Name, Namespaces: namespaces, Since: time.Now()}, ledger.Limits{}))
	require.NoError(t, kube.Update(t.Context(), b.client, b.client, backup, func(x *velerov1.Backup) error {
		x.Status.Phase = velerov1.BackupPhaseReadyToStart
		return nil
	}))
	return backup
}

// awaitFinished waits for the terminal phase and releases the ledger.
func (b *bed) awaitFinished(t *testing.T, backup *velerov1.Backup) *velerov1.Backup {
	t.Helper()
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKeyFromObject(backup), backup) == nil && backup.Status.Phase.Terminal()
	}, testbed.Patience, 50*time.Millisecond, "backup %s ends", backup.Name)
	l := ledger.New(b.client, b.client, server)
	entry, _, err := l.Get(t.Context(), backup.UID)
	require.NoError(t, err)
	require.NoError(t, l.Withdraw(t.Context(), entry))
	return backup
}

// objectPath returns the path of an object of a backup.
func (b *bed) objectPath(parts ...string) string {
	return filepath.Join(append([]string{b.bucket, "backups", "backups"}, parts...)...)
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}
