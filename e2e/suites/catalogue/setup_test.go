// Package catalogue_test tries manifest-indexer and deletion, two replicas of each, on a real API
// server with locations in a directory and on an S3 server.
package catalogue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/location"
	"github.com/holdfast-io/holdfast/pkg/service"
	deletion "github.com/holdfast-io/holdfast/services/deletion/app"
	indexer "github.com/holdfast-io/holdfast/services/manifest-indexer/app"
)

const (
	namespace = "velero"
	patience  = testbed.Patience
)

// bed is a cluster with a location in a directory ("file") and one on S3 ("s3"), and the services.
type bed struct {
	t       *testing.T
	cluster *testbed.Cluster
	client  client.Client
	nats    string
	dir     string // of the file location
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, cluster: testbed.StartT(t), nats: testbed.StartNATST(t), dir: t.TempDir()}
	require.NoError(t, crds.Install(t.Context(), b.cluster.RestConfig()))
	var err error
	b.client, err = client.New(b.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b.createObject(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "bucket"), 0o700))
	b.createObject(newLocation("file", holdfast.ProviderFile, map[string]string{"path": b.dir}))
	s3 := testbed.StartS3T(t)
	require.NoError(t, s3.CreateBucket(t.Context(), "bucket"))
	b.createObject(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud"}, StringData: map[string]string{"cloud": s3.CredentialsFile()},
	})
	loc := newLocation("s3", "aws", s3.LocationConfig())
	loc.Spec.ObjectStorage.Prefix = "team/one"
	loc.Spec.Credential = &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "cloud"}, Key: "cloud"}
	b.createObject(loc)
	for range 2 {
		b.runService(indexer.Name, func(ctx context.Context, base service.Base) (service.Runner, error) {
			config := service.NewConfig[indexer.Config]()
			config.Base, config.BackupSyncPeriod, config.ArtifactAddress = base, time.Second, "127.0.0.1:0"
			return indexer.New(ctx, config)
		})
		b.runService(deletion.Name, func(ctx context.Context, base service.Base) (service.Runner, error) {
			config := service.NewConfig[deletion.Config]()
			config.Base, config.CollectionFrequency, config.SweepInterval, config.ClaimTimeout = base, time.Second, time.Second, 5*time.Second
			return deletion.New(ctx, config)
		})
	}
	return b
}

func newLocation(name, provider string, config map[string]string) *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: provider, Config: config, StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "bucket"}},
		},
	}
}

// runService starts a service in this process and stops it at the end of the test.
func (b *bed) runService(name string, build service.Build) {
	b.t.Helper()
	options := service.Defaults(name, service.Ports{})
	options.Kubeconfig, options.Namespace, options.NATSURL, options.WorkDir = b.cluster.Kubeconfig(), namespace, b.nats, b.t.TempDir()
	base := service.Base{
		Name: name, Instance: service.NewInstance(name), Options: options, Clock: clock.RealClock{}, Tracer: noop.NewTracerProvider(),
		Log: slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	runner, err := build(b.t.Context(), base)
	require.NoError(b.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		require.NoError(b.t, <-done, name)
	})
}

func (b *bed) createObject(obj client.Object) {
	b.t.Helper()
	require.NoError(b.t, b.client.Create(b.t.Context(), obj))
}

// getObject reads an object; false when it does not exist.
func (b *bed) getObject(name string, into client.Object) bool {
	b.t.Helper()
	err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(b.t, err)
	return true
}

// requireEventually waits until check says true.
func (b *bed) requireEventually(check func() bool, what string) {
	b.t.Helper()
	require.Eventually(b.t, check, patience, 50*time.Millisecond, what)
}

// openStore opens a location as the services do.
func (b *bed) openStore(name string) objectstore.Store {
	b.t.Helper()
	store, err := location.New(b.client, namespace).OpenName(b.t.Context(), name)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, store.Close()) })
	return store
}

// plantBackup writes a finished backup into a location, as another cluster would have.
func (b *bed) plantBackup(store objectstore.Store, name string, expires time.Time) {
	b.t.Helper()
	backup := &velerov1.Backup{
		TypeMeta: metav1.TypeMeta{APIVersion: "velero.io/v1", Kind: "Backup"}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: "theirs"},
	}
	backup.Status.Phase = velerov1.BackupPhaseCompleted
	backup.Status.StartTimestamp = &metav1.Time{Time: time.Now().Add(-time.Hour).Truncate(time.Second)}
	backup.Status.Expiration = &metav1.Time{Time: expires.Truncate(time.Second)}
	data, err := json.Marshal(backup)
	require.NoError(b.t, err)
	for key, content := range map[string][]byte{
		layout.BackupTarball(name): []byte("tarball"), layout.BackupLog(name): []byte("\x1f\x8blog"), layout.Part(name, "theirs", 1, "u", 0, 0): []byte("part"),
		layout.BackupMetadata(name): data,
	} {
		require.NoError(b.t, objectstore.PutBytes(b.t.Context(), store, key, content))
	}
}

// listKeys lists a location.
func (b *bed) listKeys(store objectstore.Store) []string {
	b.t.Helper()
	var keys []string
	require.NoError(b.t, store.List(b.t.Context(), "", func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	}))
	return keys
}

// fetchURL downloads a URL as Velero's CLI does.
func (b *bed) fetchURL(url string) (int, []byte) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(b.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer func() { require.NoError(b.t, resp.Body.Close()) }()
	var body bytes.Buffer
	_, err = io.Copy(&body, resp.Body)
	require.NoError(b.t, err)
	return resp.StatusCode, body.Bytes()
}
