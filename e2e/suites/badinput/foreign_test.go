package badinput

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// hostileArchive writes a tarball as Velero 1.18 does (format 1.1.0).
type hostileArchive struct {
	t   *testing.T
	raw bytes.Buffer
	zip *gzip.Writer
	tar *tar.Writer
}

func newArchive(t *testing.T) *hostileArchive {
	t.Helper()
	a := &hostileArchive{t: t}
	a.zip = gzip.NewWriter(&a.raw)
	a.tar = tar.NewWriter(a.zip)
	a.addEntry("metadata/version", []byte("1.1.0\n"))
	return a
}

func (a *hostileArchive) addEntry(name string, body []byte) {
	a.t.Helper()
	a.addHeader(&tar.Header{Name: name, Size: int64(len(body)), Typeflag: tar.TypeReg, Mode: 0o755})
	_, err := a.tar.Write(body)
	require.NoError(a.t, err)
}

func (a *hostileArchive) addHeader(h *tar.Header) {
	a.t.Helper()
	require.NoError(a.t, a.tar.WriteHeader(h))
}

func (a *hostileArchive) addEstate(namespace string) {
	a.t.Helper()
	for path, obj := range map[string]client.Object{"configmaps": newKeptConfigMap(namespace), "secrets": newHiddenSecret(namespace)} {
		body, err := json.Marshal(obj)
		require.NoError(a.t, err)
		a.addEntry("resources/"+path+"/namespaces/"+namespace+"/"+obj.GetName()+".json", body)
	}
}

func (a *hostileArchive) finishArchive() []byte {
	a.t.Helper()
	require.NoError(a.t, a.tar.Close())
	require.NoError(a.t, a.zip.Close())
	return a.raw.Bytes()
}

// plantBackup writes a backup into the bucket as another cluster's Velero would have left it.
func plantBackup(t *testing.T, bucket, name string, tarball []byte) {
	t.Helper()
	start := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	backup := &velerov1.Backup{
		TypeMeta:   metav1.TypeMeta{APIVersion: "velero.io/v1", Kind: "Backup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name, UID: "theirs"},
		Spec:       velerov1.BackupSpec{StorageLocation: "theirs"},
		Status: velerov1.BackupStatus{Version: 1, FormatVersion: "1.1.0", Phase: velerov1.BackupPhaseCompleted,
			StartTimestamp: &start, CompletionTimestamp: &start},
	}
	meta, err := json.Marshal(backup)
	require.NoError(t, err)
	plantFiles(t, bucket, name, map[string][]byte{"velero-backup.json": meta, name + ".tar.gz": tarball})
}

func plantFiles(t *testing.T, bucket, name string, files map[string][]byte) {
	t.Helper()
	dir := filepath.Join(bucket, "backups", name)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for file, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
}

const bombBytes = 300 << 20

// foreignCase is a hostile backup: what is added to a good archive, and what is done to its bytes.
type foreignCase struct {
	add   func(a *hostileArchive, namespace string)
	spoil func(raw []byte) []byte
	want  []string // in the one error
	empty bool     // nothing can be restored
}

func foreignCases() map[string]foreignCase {
	noise := func(a *hostileArchive, ns string) {
		body := make([]byte, 100<<10)
		_, _ = rand.Read(body) // never fails
		a.addEntry("resources/configmaps/namespaces/"+ns+"/noise.json", body)
	}
	text := func(path, body string) func(*hostileArchive, string) {
		return func(a *hostileArchive, ns string) {
			a.addEntry("resources/"+path+"/namespaces/"+ns+"/bad.json", []byte(body))
		}
	}
	secret := func(tail string) func(*hostileArchive, string) {
		return func(a *hostileArchive, ns string) {
			text("secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bad","namespace":"`+ns+`"},`+tail)(a, ns)
		}
	}
	return map[string]foreignCase{
		"truncated": {add: noise, spoil: func(raw []byte) []byte { return raw[:len(raw)-50<<10] }, want: []string{"tarball", "noise.json"}, empty: true},
		"traversal": {add: func(a *hostileArchive, _ string) { a.addEntry("../../../evil.json", []byte("{}")) }, want: []string{"../../../evil.json"}},
		"symlink": {add: func(a *hostileArchive, ns string) {
			a.addHeader(&tar.Header{Name: "resources/configmaps/namespaces/" + ns + "/link.json", Linkname: "/etc/passwd", Typeflag: tar.TypeSymlink})
		}, want: []string{"link.json"}},
		"bomb":         {add: addBomb, want: []string{"bomb.json", "314572800"}},
		"cut-secret":   {add: secret(`"stringData":{"password":"` + marker), want: []string{"secrets", "bad.json"}},
		"no-base64":    {add: secret(`"data":{"password":"!` + marker + `!"}}`), want: []string{"bad"}},
		"odd-secret":   {add: secret(`"data":["` + marker + `"]}`), want: []string{"bad"}},
		"unknown-kind": {add: text("gizmos.example.com", `{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"bad","namespace":"foreign-unknown-kind"}}`), want: []string{"gizmos.example.com"}},
	}
}

// addBomb is a small piece of the archive that unpacks to much.
func addBomb(a *hostileArchive, ns string) {
	a.addHeader(&tar.Header{Name: "resources/configmaps/namespaces/" + ns + "/bomb.json", Size: bombBytes, Typeflag: tar.TypeReg})
	_, err := io.CopyN(a.tar, zeroReader{}, bombBytes)
	require.NoError(a.t, err)
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// plantForeign fills the bucket: one good backup, the bad ones, and directories that are no backups
// at all.
func plantForeign(t *testing.T, bucket string) {
	t.Helper()
	good := newArchive(t)
	good.addEstate("foreign-intact")
	plantBackup(t, bucket, "intact", good.finishArchive())
	for name, c := range foreignCases() {
		a := newArchive(t)
		a.addEstate("foreign-" + name)
		if c.add != nil {
			c.add(a, "foreign-"+name)
		}
		raw := a.finishArchive()
		if c.spoil != nil {
			raw = c.spoil(raw)
		}
		plantBackup(t, bucket, name, raw)
	}
	plantFiles(t, bucket, "metadata-garbage", map[string][]byte{"velero-backup.json": []byte(`{"kind":`)})
	plantFiles(t, bucket, "metadata-other", map[string][]byte{
		"velero-backup.json": []byte(`{"apiVersion":"velero.io/v1","kind":"Backup","metadata":{"name":"another"},"status":{"phase":"Completed"}}`)})
	plantFiles(t, bucket, "metadata-bomb", map[string][]byte{"velero-backup.json": bytes.Repeat([]byte(" "), 9<<20)})
}

// awaitImported waits until the backup in the bucket has its object.
func (b *bed) awaitImported(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, &velerov1.Backup{}) == nil
	}, site.Patience, site.Look, "backup %s is found in the bucket", name)
}

func (b *bed) restoreForeign(t *testing.T) {
	t.Parallel()
	t.Run("intact", func(t *testing.T) {
		t.Parallel()
		b.awaitImported(t, "intact")
		restore := b.runRestore(t, "from-intact", velerov1.RestoreSpec{BackupName: "intact"})
		require.Equal(t, velerov1.RestorePhaseCompleted, restore.Status.Phase, restore.Status.FailureReason)
		b.isBack(t, "foreign-intact")
	})
	for name, c := range foreignCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.awaitImported(t, name)
			restore := b.runRestore(t, "from-"+name, velerov1.RestoreSpec{BackupName: name})
			require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, restore.Status.FailureReason)
			errs := b.readResults(t, "restores/"+restore.Name+"/restore-"+restore.Name+"-results.gz").messagesOf("errors")
			require.Len(t, errs, 1)
			require.Equal(t, 1, restore.Status.Errors)
			for _, word := range c.want {
				require.Contains(t, errs[0], word)
			}
			if !c.empty {
				b.isBack(t, "foreign-"+name)
			}
		})
	}
	t.Run("no backups", func(t *testing.T) {
		t.Parallel()
		b.awaitImported(t, "intact") // in the same pass
		for _, name := range []string{"metadata-garbage", "metadata-other", "metadata-bomb", "another"} {
			err := b.Client.Get(t.Context(), client.ObjectKey{Namespace: site.Server, Name: name}, &velerov1.Backup{})
			require.True(t, apierrors.IsNotFound(err), name)
		}
		require.Eventually(t, func() bool {
			log, err := os.ReadFile(b.Fleet.Of("manifest-indexer")[0].LogPath())
			return err == nil && bytes.Contains(log, []byte("metadata-garbage")) && bytes.Contains(log, []byte("metadata-other")) && bytes.Contains(log, []byte("metadata-bomb"))
		}, site.Patience, site.Look, "the log names what cannot be read")
	})
}

// isBack requires the estate of a restored namespace.
func (b *bed) isBack(t *testing.T, namespace string) {
	t.Helper()
	config, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "kept"}, config))
	require.Equal(t, newKeptConfigMap(namespace).Data, config.Data)
	require.NoError(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "hidden"}, secret))
	require.Equal(t, newHiddenSecret(namespace).Data, secret.Data)
}
