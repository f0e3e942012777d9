package shared

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// readUIDs reads the UIDs by which the cluster's objects are distinguished from the other's.
func (m *sharedCluster) readUIDs(t *testing.T, namespace string) {
	t.Helper()
	system, own := &corev1.Namespace{}, &corev1.Namespace{}
	require.NoError(t, m.Client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system))
	require.NoError(t, m.Client.Get(t.Context(), client.ObjectKey{Name: namespace}, own))
	m.cluster = string(system.UID)
	objects := map[string]bool{string(own.UID): true}
	m.objects = objects
	require.Eventually(t, func() bool {
		var maps corev1.ConfigMapList
		var accounts corev1.ServiceAccountList
		if m.Client.List(t.Context(), &maps, client.InNamespace(namespace)) != nil || m.Client.List(t.Context(), &accounts, client.InNamespace(namespace)) != nil {
			return false
		}
		authority := false
		for _, o := range maps.Items {
			objects[string(o.UID)] = true
			authority = authority || o.Name == "kube-root-ca.crt"
		}
		for _, o := range accounts.Items {
			objects[string(o.UID)] = true
		}
		return authority && len(accounts.Items) > 0
	}, site.Patience, site.Look, "the controllers' objects are there")
	var secrets corev1.SecretList
	require.NoError(t, m.Client.List(t.Context(), &secrets, client.InNamespace(namespace)))
	for _, o := range secrets.Items {
		objects[string(o.UID)] = true
	}
}

// checkWon requires a completed backup of which every object in the bucket is this cluster's.
func checkWon(t *testing.T, m *sharedCluster, bucket *site.Bucket, name string) {
	t.Helper()
	backup := m.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, backup.Status.Phase, "%s on the %s cluster: %s", name, m.name, backup.Status.FailureReason)
	objects := m.objects
	require.Equal(t, len(objects), backup.Status.Progress.ItemsBackedUp)

	owner, err := layout.DecodeOwner(bucket.Read(t, layout.OwnerFile(name)))
	require.NoError(t, err)
	require.Equal(t, layout.Owner{BackupUID: string(backup.UID), ClusterUID: m.cluster}, owner)
	var metadata velerov1.Backup
	require.NoError(t, json.Unmarshal(bucket.Read(t, layout.BackupMetadata(name)), &metadata))
	require.Equal(t, backup.UID, metadata.UID)
	require.Equal(t, velerov1.BackupPhaseCompleted, metadata.Status.Phase)

	stored := map[string]bool{}
	bucket.EachStored(t, name, func(path string, content []byte) {
		if !strings.HasPrefix(path, "resources/") {
			return
		}
		var object metav1.PartialObjectMetadata
		require.NoError(t, json.Unmarshal(content, &object), path)
		stored[string(object.UID)] = true
	})
	require.Equal(t, objects, stored, "the tarball holds this cluster's objects and no others")
	require.Equal(t, objects, manifestUIDs(t, bucket.Read(t, layout.BackupManifest(name))), "so does the manifest")

	var kinds map[string][]string
	require.NoError(t, json.Unmarshal(bucket.ReadZipped(t, layout.BackupResourceList(name)), &kinds))
	n := 0
	for _, names := range kinds {
		n += len(names)
	}
	require.Len(t, objects, n, "so does the resource list")
	require.Eventually(t, func() bool {
		for _, key := range bucket.Keys(t) {
			if strings.HasPrefix(key, layout.PartsDir(name)) {
				return false
			}
		}
		return true
	}, site.Patience, site.Look, "no parts of anybody are left")
}

// manifestUIDs returns the UIDs in a manifest.
func manifestUIDs(t *testing.T, file []byte) map[string]bool {
	t.Helper()
	reader, err := manifest.Open(t.Context(), ranges(file), int64(len(file)))
	require.NoError(t, err)
	uids := map[string]bool{}
	for item, err := range reader.Items(t.Context(), manifest.Filter{}) {
		require.NoError(t, err)
		uids[item.UID] = true
	}
	return uids
}

// checkLost requires a backup that failed with the reason that its name was taken.
func checkLost(t *testing.T, m *sharedCluster, name string) {
	t.Helper()
	backup := m.BackupEnds(t, name)
	require.Equal(t, velerov1.BackupPhaseFailed, backup.Status.Phase, "%s on the %s cluster", name, m.name)
	require.Contains(t, backup.Status.FailureReason, "already exists in object storage")
	require.NotNil(t, backup.Status.CompletionTimestamp)
}

func (m *sharedCluster) isAbsent(t *testing.T, name string) bool {
	t.Helper()
	return apierrors.IsNotFound(m.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, &velerov1.Backup{}))
}

// keysUnder keeps what belongs to a backup.
func keysUnder(digests map[string]string, backup string) map[string]string {
	digests = maps.Clone(digests)
	maps.DeleteFunc(digests, func(key, _ string) bool { return !strings.HasPrefix(key, layout.BackupDir(backup)) })
	return digests
}

// ranges reads a file that is in memory.
type ranges []byte

// ReadRange implements manifest.RangeReader.
func (r ranges) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(r), off, n)), nil
}
