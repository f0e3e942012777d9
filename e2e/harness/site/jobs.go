package site

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Backup creates a Backup of some namespaces.
func (s *Site) Backup(t *testing.T, name string, bucket *Bucket, namespaces ...string) *velerov1.Backup {
	t.Helper()
	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: Server, Name: name},
		Spec: velerov1.BackupSpec{StorageLocation: bucket.Location, IncludedNamespaces: namespaces}}
	require.NoError(t, s.Client.Create(t.Context(), backup))
	return backup
}

// Restore creates a Restore of one namespace of a backup into another namespace.
func (s *Site) Restore(t *testing.T, name, backup, from, to string) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: Server, Name: name},
		Spec: velerov1.RestoreSpec{BackupName: backup, IncludedNamespaces: []string{from}, NamespaceMapping: map[string]string{from: to}}}
	require.NoError(t, s.Client.Create(t.Context(), restore))
	return restore
}

// BackupEnds waits for a terminal phase.
func (s *Site) BackupEnds(t *testing.T, name string) *velerov1.Backup {
	t.Helper()
	backup := &velerov1.Backup{}
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKey{Namespace: Server, Name: name}, backup) == nil && backup.Status.Phase.Terminal()
	}, Patience, Look, "backup %s ends", name)
	return backup
}

// RestoreEnds waits for a terminal phase.
func (s *Site) RestoreEnds(t *testing.T, name string) *velerov1.Restore {
	t.Helper()
	restore := &velerov1.Restore{}
	require.Eventually(t, func() bool {
		return s.Client.Get(t.Context(), client.ObjectKey{Namespace: Server, Name: name}, restore) == nil && restore.Status.Phase.Terminal()
	}, Patience, Look, "restore %s ends", name)
	return restore
}

// Data returns a digest of what the objects of Estate hold in a namespace, by kind and name.
func (s *Site) Data(ctx context.Context, namespace string) (map[string]string, error) {
	data := map[string]string{}
	in := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{seed.Label: seed.LabelValue}}
	var maps corev1.ConfigMapList
	if err := s.Client.List(ctx, &maps, in...); err != nil {
		return nil, err
	}
	for _, o := range maps.Items {
		data["ConfigMap "+o.Name] = digestOf(o.Data)
	}
	var secrets corev1.SecretList
	if err := s.Client.List(ctx, &secrets, in...); err != nil {
		return nil, err
	}
	for _, o := range secrets.Items {
		data["Secret "+o.Name] = digestOf(o.Data)
	}
	return data, nil
}

func digestOf(content any) string {
	text, err := json.Marshal(content) // in order of keys
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
