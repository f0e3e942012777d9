package volumefiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// RestoreSnapshot restores a snapshot of a namespace's repository, and returns what the mover complains of.
func RestoreSnapshot(t *testing.T, s *site.Site, bucket *site.Bucket, namespace, id string) string {
	t.Helper()
	return runMover(t, s, bucket, namespace, "move", "restore", "--snapshot", id, "--target", t.TempDir())
}

// CreateRepository makes a repository of a namespace with nothing in it.
func CreateRepository(t *testing.T, s *site.Site, bucket *site.Bucket, namespace string) {
	t.Helper()
	missing := filepath.Join(t.TempDir(), "missing")
	require.Contains(t, runMover(t, s, bucket, namespace, "move", "upload", "--create-repository", "--volume", "none", "--source", missing), missing)
}

// Maintain maintains the repository of a namespace in full, and returns what the mover complains of.
func Maintain(t *testing.T, s *site.Site, bucket *site.Bucket, namespace string) string {
	t.Helper()
	return runMover(t, s, bucket, namespace, "maintain", "--mode", "full")
}

// runMover runs a command of volume-mover about a namespace's repository, and returns what it complains of.
func runMover(t *testing.T, s *site.Site, bucket *site.Bucket, namespace string, args ...string) string {
	t.Helper()
	binary, err := testbed.Product("volume-mover")
	require.NoError(t, err)
	loc, keys, password := &velerov1.BackupStorageLocation{}, &corev1.Secret{}, &corev1.Secret{}
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: bucket.Location}, loc))
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: loc.Spec.Credential.Name}, keys))
	require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: velerov1.RepositorySecret}, password))
	loc.TypeMeta = metav1.TypeMeta{APIVersion: velerov1.GroupVersion.String(), Kind: "BackupStorageLocation"}
	keys.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	dir, manifests := t.TempDir(), ""
	for _, o := range []client.Object{loc, keys} {
		text, err := yaml.Marshal(o)
		require.NoError(t, err)
		manifests += "---\n" + string(text)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("location"), []byte(manifests), 0o600))
	require.NoError(t, os.WriteFile(at("password"), password.Data[velerov1.RepositoryPasswordKey], 0o600))
	args = append(args, "--location", at("location"), "--password-file", at("password"), "--namespace", namespace, "--cache-dir", dir)
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err != nil {
		return string(out)
	}
	return ""
}

// SharePassword gives a site the password of another's repositories, before it has one.
func SharePassword(t *testing.T, from, to *site.Site) {
	t.Helper()
	key := client.ObjectKey{Namespace: site.Server, Name: velerov1.RepositorySecret}
	theirs, own := &corev1.Secret{}, &corev1.Secret{}
	for secret, s := range map[*corev1.Secret]*site.Site{theirs: from, own: to} {
		require.Eventually(t, func() bool { return s.Client.Get(t.Context(), key, secret) == nil }, site.Patience, site.Look, "there is a password")
	}
	own.Data = theirs.Data
	require.NoError(t, to.Client.Update(t.Context(), own))
}
