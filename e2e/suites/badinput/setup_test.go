package badinput

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/apis/crds"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

const (
	server   = "velero" // the namespace Holdfast serves
	patience = testbed.Patience
	look     = 50 * time.Millisecond
	// marker is in every Secret of these tests and may be nowhere but in Secrets and tarballs.
	marker = "hf-marker-3f9c1d7e"
)

// bed is a cluster, the six services as processes of their own, and a location ("default") in a
// directory.
type bed struct {
	cluster *testbed.Cluster
	fleet   *fleet.Fleet
	client  client.Client
	api     apiClient
	objects string    // directory of buckets
	bucket  bucketDir // of the default location
}

// apiClient makes and awaits objects of the cluster.
type apiClient struct{ client client.Client }

// bucketDir is a bucket, a directory.
type bucketDir struct{ path string }

// newBed starts everything. plant is called with the bucket before anything runs.
func newBed(t *testing.T, plant func(t *testing.T, bucket string)) *bed {
	t.Helper()
	b := &bed{cluster: testbed.StartT(t), objects: t.TempDir()}
	b.bucket.path = filepath.Join(b.objects, "bucket")
	require.NoError(t, os.Mkdir(b.bucket.path, 0o700))
	plant(t, b.bucket.path)
	require.NoError(t, crds.Install(t.Context(), b.cluster.RestConfig()))
	var err error
	b.client, err = client.New(b.cluster.RestConfig(), client.Options{Scheme: kube.Scheme()})
	require.NoError(t, err)
	b.api.client = b.client
	b.api.createNamespace(t, server)
	loc := b.newLocation("default")
	loc.Spec.Default = true
	b.api.createObject(t, loc)
	b.fleet, err = fleet.Start(t.Context(), fleet.Config{
		Dir: t.TempDir(), Kubeconfig: b.cluster.Kubeconfig(), Rest: b.cluster.RestConfig(),
		Args: map[string][]string{
			"manifest-indexer": {"--backup-sync-period", "1s"},
			"queue-scheduler":  {"--concurrent-backups", "4"},
		},
	})
	require.NoError(t, err)
	t.Cleanup(b.fleet.Stop)
	t.Cleanup(func() {
		for _, m := range b.fleet.Members {
			if t.Failed() {
				t.Logf("%s complains:\n%s", filepath.Base(m.LogPath()), testbed.Complaints(m.LogPath(), 8))
			}
		}
	})
	b.api.waitLocation(t, "default", velerov1.LocationPhaseAvailable)
	return b
}

// newLocation is a usable location in the bucket directory of the bed.
func (b *bed) newLocation(name string) *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: holdfast.ProviderFile, Config: map[string]string{"path": b.objects},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: "bucket"}},
		},
	}
}

func (a *apiClient) waitLocation(t *testing.T, name string, phase velerov1.BackupStorageLocationPhase) *velerov1.BackupStorageLocation {
	t.Helper()
	loc := &velerov1.BackupStorageLocation{}
	require.Eventually(t, func() bool {
		return a.client.Get(t.Context(), client.ObjectKey{Namespace: server, Name: name}, loc) == nil && loc.Status.Phase == phase
	}, patience, look, "location %s gets %s", name, phase)
	return loc
}

func (a *apiClient) createObject(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoError(t, a.client.Create(t.Context(), obj))
}

func (a *apiClient) createNamespace(t *testing.T, name string) {
	t.Helper()
	a.createObject(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// createEstate fills a new namespace: a ConfigMap "kept" and a Secret "hidden" that holds the marker.
func (a *apiClient) createEstate(t *testing.T, namespace string) {
	t.Helper()
	a.createNamespace(t, namespace)
	a.createObject(t, newKeptConfigMap(namespace))
	a.createObject(t, newHiddenSecret(namespace))
}

func newKeptConfigMap(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}, Data: map[string]string{"k": "v"},
	}
}

// newHiddenSecret also has the annotation that `kubectl apply` leaves, which repeats the data.
func newHiddenSecret(namespace string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hidden", Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","stringData":{"password":%q}}`, marker),
		}},
		Data: map[string][]byte{"password": []byte(marker)},
	}
}

// runBackup creates a Backup and waits for its end.
func (b *bed) runBackup(t *testing.T, name string, spec velerov1.BackupSpec) *velerov1.Backup {
	t.Helper()
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name}, Spec: spec}
	b.api.createObject(t, backup)
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKeyFromObject(backup), backup) == nil && backup.Status.Phase.Terminal()
	}, patience, look, "backup %s ends", name)
	return backup
}

// runRestore creates a Restore and waits for its end.
func (b *bed) runRestore(t *testing.T, name string, spec velerov1.RestoreSpec) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: name}, Spec: spec}
	b.api.createObject(t, restore)
	require.Eventually(t, func() bool {
		return b.client.Get(t.Context(), client.ObjectKeyFromObject(restore), restore) == nil && restore.Status.Phase.Terminal()
	}, patience, look, "restore %s ends", name)
	return restore
}

// jobResults is the results file of a backup or restore: "errors" or "warnings", then where, then
// messages.
type jobResults map[string]struct {
	Velero     []string            `json:"velero"`
	Cluster    []string            `json:"cluster"`
	Namespaces map[string][]string `json:"namespaces"`
}

// messagesOf returns the messages of one level, with their namespace in front.
func (r jobResults) messagesOf(level string) []string {
	out := append(append([]string{}, r[level].Velero...), r[level].Cluster...)
	for ns, messages := range r[level].Namespaces {
		for _, m := range messages {
			out = append(out, ns+": "+m)
		}
	}
	return out
}

func (d *bucketDir) readResults(t *testing.T, path ...string) jobResults {
	t.Helper()
	var out jobResults
	raw := d.readGzip(t, path...)
	require.NoError(t, json.Unmarshal(raw, &out), string(raw))
	return out
}

// readGzip reads a gzip file of the bucket.
func (d *bucketDir) readGzip(t *testing.T, path ...string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{d.path}, path...)...))
	require.NoError(t, err)
	return gunzipBytes(t, raw)
}

func gunzipBytes(t *testing.T, raw []byte) []byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	require.NoError(t, err)
	out, err := io.ReadAll(zip)
	require.NoError(t, err)
	return out
}

// savedObjects returns what the backup's resource list names, as "v1/ConfigMap ns/name".
func (d *bucketDir) savedObjects(t *testing.T, backup string) []string {
	t.Helper()
	var list map[string][]string
	require.NoError(t, json.Unmarshal(d.readGzip(t, "backups", backup, backup+"-resource-list.json.gz"), &list))
	var out []string
	for kind, names := range list {
		for _, name := range names {
			out = append(out, kind+" "+name)
		}
	}
	return out
}

// oneError requires a backup that saved the estate of its namespace and counted one error that
// names all of words.
func (d *bucketDir) oneError(t *testing.T, backup *velerov1.Backup, namespace string, words ...string) {
	t.Helper()
	r := d.readResults(t, "backups", backup.Name, backup.Name+"-results.gz")
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, backup.Status.Phase, "%s %v", backup.Status.FailureReason, r)
	require.Equal(t, 1, backup.Status.Errors, "%v", r)
	errs := r.messagesOf("errors")
	require.Len(t, errs, 1)
	for _, word := range words {
		require.Contains(t, errs[0], word)
	}
	d.hasEstate(t, backup.Name, namespace)
}

func (d *bucketDir) hasEstate(t *testing.T, backup, namespace string) {
	t.Helper()
	saved := d.savedObjects(t, backup)
	for _, object := range []string{"v1/Namespace " + namespace, "v1/ConfigMap " + namespace + "/kept", "v1/Secret " + namespace + "/hidden"} {
		require.Contains(t, saved, object)
	}
}
