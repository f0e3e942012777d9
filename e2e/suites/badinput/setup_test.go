package badinput

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// marker is in every Secret of these tests and may be nowhere but in Secrets and tarballs.
const marker = "hf-marker-3f9c1d7e"

// bed is a site with a location ("default") in a directory.
type bed struct {
	*site.Site
	bucket *site.Bucket
	dir    string // of buckets
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Site: site.Start(t, site.Config{Args: map[string][]string{
		"manifest-indexer": {"--backup-sync-period", "1s"}, "queue-scheduler": {"--concurrent-backups", "4"},
	}})}
	b.bucket, b.dir = site.FileBucket(t, "default")
	b.ReachFiles(t, b.dir, b.bucket)
	return b
}

// bucketDir is the directory of the default location's bucket.
func (b *bed) bucketDir() string { return filepath.Join(b.dir, b.bucket.Location) }

// newLocation is a usable location in the default bucket.
func (b *bed) newLocation(name string) *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name},
		Spec: velerov1.BackupStorageLocationSpec{
			Provider: holdfast.ProviderFile, Config: map[string]string{"path": b.dir},
			StorageType: velerov1.StorageType{ObjectStorage: &velerov1.ObjectStorageLocation{Bucket: b.bucket.Location}},
		},
	}
}

func (b *bed) waitLocation(t *testing.T, name string, phase velerov1.BackupStorageLocationPhase) *velerov1.BackupStorageLocation {
	t.Helper()
	loc := &velerov1.BackupStorageLocation{}
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, loc) == nil && loc.Status.Phase == phase
	}, site.Patience, site.Look, "location %s gets %s", name, phase)
	return loc
}

func (b *bed) createObject(t *testing.T, obj client.Object) {
	t.Helper()
	require.NoError(t, b.Client.Create(t.Context(), obj))
}

// createEstate fills a new namespace: a ConfigMap "kept" and a Secret "hidden" that holds the marker.
func (b *bed) createEstate(t *testing.T, namespace string) {
	t.Helper()
	b.Namespace(t, namespace)
	b.createObject(t, newKeptConfigMap(namespace))
	b.createObject(t, newHiddenSecret(namespace))
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
	b.createObject(t, &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: spec})
	return b.BackupEnds(t, name)
}

// runRestore creates a Restore and waits for its end.
func (b *bed) runRestore(t *testing.T, name string, spec velerov1.RestoreSpec) *velerov1.Restore {
	t.Helper()
	b.createObject(t, &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: spec})
	return b.RestoreEnds(t, name)
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

func (b *bed) readResults(t *testing.T, key string) jobResults {
	t.Helper()
	var out jobResults
	raw := b.bucket.ReadZipped(t, key)
	require.NoError(t, json.Unmarshal(raw, &out), string(raw))
	return out
}

// savedObjects returns what the backup's resource list names, as "v1/ConfigMap ns/name".
func (b *bed) savedObjects(t *testing.T, backup string) []string {
	t.Helper()
	var list map[string][]string
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, "backups/"+backup+"/"+backup+"-resource-list.json.gz"), &list))
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
func (b *bed) oneError(t *testing.T, backup *velerov1.Backup, namespace string, words ...string) {
	t.Helper()
	r := b.readResults(t, "backups/"+backup.Name+"/"+backup.Name+"-results.gz")
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, backup.Status.Phase, "%s %v", backup.Status.FailureReason, r)
	require.Equal(t, 1, backup.Status.Errors, "%v", r)
	errs := r.messagesOf("errors")
	require.Len(t, errs, 1)
	for _, word := range words {
		require.Contains(t, errs[0], word)
	}
	b.hasEstate(t, backup.Name, namespace)
}

func (b *bed) hasEstate(t *testing.T, backup, namespace string) {
	t.Helper()
	saved := b.savedObjects(t, backup)
	for _, object := range []string{"v1/Namespace " + namespace, "v1/ConfigMap " + namespace + "/kept", "v1/Secret " + namespace + "/hidden"} {
		require.Contains(t, saved, object)
	}
}
