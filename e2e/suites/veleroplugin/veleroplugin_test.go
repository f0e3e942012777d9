//go:build velero

package veleroplugin_test

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// buildPlugin compiles the plugin into a directory of its own.
func buildPlugin(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "velerofw"), ".")
	cmd.Dir = "../../tools/velerofw"
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

func newPod(name string) *action.Object {
	return action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"` + name + `","labels":{"velerofw":"x"}},"spec":{"big":9007199254740993}}`))
}

func annotationOf(t *testing.T, o *action.Object, key string) string {
	t.Helper()
	u, err := o.Copy()
	require.NoError(t, err)
	return u.GetAnnotations()["velerofw.io/"+key]
}

// literally resolves nothing, so that names stay as they are.
type literally struct{}

func (literally) Resolve(string) (gr schema.GroupResource, namespaced, ok bool) {
	return gr, false, false
}

var secret = []action.Item{{GroupResource: schema.GroupResource{Resource: "secrets"}, Namespace: "a", Name: "velerofw"}}

func TestPluginsBuiltWithVelerosFramework(t *testing.T) {
	var log bytes.Buffer
	h, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: buildPlugin(t), Namespace: "velero", LogLevel: "info", Features: []string{"EnableCSI"}, Environ: os.Environ(),
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	require.Len(t, h.Plugins(), 10)
	s := h.Open(t.Context(), slog.New(slog.NewJSONHandler(&log, nil)))
	t.Run("backup", func(t *testing.T) { testBackup(t, s) })
	t.Run("restore", func(t *testing.T) { testRestore(t, s) })
	t.Run("operations", func(t *testing.T) { testOperations(t, h) })
	t.Run("delete and item blocks", func(t *testing.T) { testOthers(t, s) })
	t.Run("object store", func(t *testing.T) { objectStore(t, s) })
	t.Run("volumes", func(t *testing.T) { testVolumes(t, s) })
	s.Close()
	require.Contains(t, log.String(), `"level":"WARN","msg":"backup v1 executed"`)
	require.Contains(t, log.String(), `"pod":"exit"`)
}

func theBackup(t *testing.T) *action.Backup {
	t.Helper()
	b, err := action.NewBackup(&velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b1"}})
	require.NoError(t, err)
	return b
}

func testBackup(t *testing.T, s *pluginhost.Session) {
	bound, errs := action.Bind(t.Context(), s.BackupItems(), literally{})
	require.Empty(t, errs)
	require.Len(t, bound, 3, "registered in both versions, it runs once")
	b := theBackup(t)
	object := newPod("p")
	for i, name := range []string{"velerofw.io/backup", "velerofw.io/backup-v2", "velerofw.io/both"} {
		require.Equal(t, name, bound[i].Action.Name())
		require.True(t, bound[i].Matches(schema.GroupResource{Resource: "pods"}, "a", labels.Set{"velerofw": "x"}))
		require.False(t, bound[i].Matches(schema.GroupResource{Resource: "pods"}, "a", labels.Set{}))
		r, err := bound[i].Action.Execute(t.Context(), object, b)
		require.NoError(t, err)
		object = r.Object
	}
	require.Equal(t, "b1", annotationOf(t, object, "backup"))
	require.Equal(t, "b1", annotationOf(t, object, "backup-v2"))

	first, second := bound[0].Action, bound[1].Action
	r, err := first.Execute(t.Context(), newPod("p"), b)
	require.NoError(t, err)
	require.Equal(t, secret, r.Additional)
	_, err = first.Execute(t.Context(), newPod("error"), b)
	require.EqualError(t, err, "plugin velerofw.io/backup: Execute of Pod a/error: velerofw refuses")
	_, err = first.Execute(t.Context(), newPod("panic"), b)
	require.ErrorIs(t, err, pluginhost.ErrPanicked)
	_, err = first.Execute(t.Context(), newPod("exit"), b)
	require.ErrorIs(t, err, pluginhost.ErrCrashed)
	unchanged := newPod("nil")
	r, err = first.Execute(t.Context(), unchanged, b)
	require.NoError(t, err, "the framework answers with what it was sent")
	require.Same(t, unchanged, r.Object)

	r, err = second.Execute(t.Context(), newPod("operation"), b)
	require.NoError(t, err)
	require.Equal(t, "op-b1", r.OperationID)
	require.Equal(t, secret, r.PostOperation)
}

func testRestore(t *testing.T, s *pluginhost.Session) {
	r1, err := action.NewRestore(&velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r1"}})
	require.NoError(t, err)
	all := s.RestoreItems()
	require.Len(t, all, 2)
	r, err := all[0].Execute(t.Context(), newPod("p"), newPod("original"), r1)
	require.NoError(t, err)
	require.Equal(t, "r1 of original", annotationOf(t, r.Object, "restore"))
	require.Equal(t, secret, r.Additional)
	r, err = all[0].Execute(t.Context(), newPod("skip"), newPod("skip"), r1)
	require.NoError(t, err)
	require.True(t, r.Skip)

	r, err = all[1].Execute(t.Context(), newPod("p"), newPod("p"), r1)
	require.NoError(t, err)
	require.True(t, r.Wait)
	require.Equal(t, 90*time.Second, r.WaitTimeout)
	ready, err := all[1].(action.Readiness).Ready(t.Context(), r.Additional, r1)
	require.NoError(t, err)
	require.True(t, ready)
}

func testOperations(t *testing.T, h *pluginhost.Host) {
	o := h.Operations(t.Context(), slog.New(slog.DiscardHandler))
	defer o.Close()
	op := action.Operation{Kind: string(pluginhost.KindBackupItemActionV2), Action: "velerofw.io/backup-v2", ID: "op-b1"}
	progress, err := o.Progress(t.Context(), op, theBackup(t).JSON())
	require.NoError(t, err)
	require.Equal(t, int64(3), progress.Total)
	require.Equal(t, "op-b1", progress.Description)
	_, err = o.Cancel(t.Context(), op, theBackup(t).JSON(), time.Minute)
	require.ErrorContains(t, err, "cannot cancel op-b1")
	r1, err := action.NewRestore(&velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r1"}})
	require.NoError(t, err)
	op.Kind, op.Action = string(pluginhost.KindRestoreItemActionV2), "velerofw.io/restore-v2"
	progress, err = o.Progress(t.Context(), op, r1.JSON())
	require.NoError(t, err)
	require.Equal(t, "velerofw breaks", progress.Err)
	accepted, err := o.Cancel(t.Context(), op, r1.JSON(), time.Minute)
	require.NoError(t, err)
	require.True(t, accepted)
}

func testOthers(t *testing.T, s *pluginhost.Session) {
	require.Len(t, s.DeleteItems(), 1)
	require.NoError(t, s.DeleteItems()[0].Execute(t.Context(), newPod("p"), theBackup(t)))
	require.ErrorContains(t, s.DeleteItems()[0].Execute(t.Context(), newPod("error"), theBackup(t)), "velerofw cannot delete what b1 holds")
	require.Len(t, s.ItemBlocks(), 1)
	related, err := s.ItemBlocks()[0].Related(t.Context(), newPod("p"), theBackup(t))
	require.NoError(t, err)
	require.Equal(t, secret, related)
}

func objectStore(t *testing.T, s *pluginhost.Session) {
	o, err := s.ObjectStore("velerofw.io/store", map[string]string{"dir": t.TempDir()})
	require.NoError(t, err)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	require.NoError(t, o.Put(t.Context(), "b", "some/key", bytes.NewReader(body)))
	exists, err := o.Exists(t.Context(), "b", "some/key")
	require.NoError(t, err)
	require.True(t, exists)
	r, err := o.Get(t.Context(), "b", "some/key")
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.True(t, bytes.Equal(body, got))
	prefixes, err := o.ListCommonPrefixes(t.Context(), "b", "/", "p")
	require.NoError(t, err)
	require.Equal(t, []string{"b:p:/"}, prefixes)
	keys, err := o.ListObjects(t.Context(), "b", "p")
	require.NoError(t, err)
	require.Equal(t, []string{"b:p"}, keys)
	url, err := o.SignedURL(t.Context(), "b", "k", 10*time.Minute)
	require.NoError(t, err)
	require.Equal(t, "https://b/k?ttl=10m0s", url)
	require.NoError(t, o.Delete(t.Context(), "b", "some/key"))
	_, err = o.Get(t.Context(), "b", "some/key")
	require.ErrorContains(t, err, "no such file")
	bad, err := s.ObjectStore("velerofw.io/store", nil)
	require.NoError(t, err)
	require.ErrorContains(t, bad.Put(t.Context(), "b", "k", strings.NewReader("x")), "Init: dir is missing")
}

func testVolumes(t *testing.T, s *pluginhost.Session) {
	v, err := s.VolumeSnapshotter("velerofw.io/volumes", map[string]string{"zone": "z"})
	require.NoError(t, err)
	id, err := v.CreateVolume(t.Context(), "snap", "az", action.Volume{Type: "fast"})
	require.NoError(t, err)
	require.Equal(t, "snap,fast,az,none,z", id)
	about, err := v.Volume(t.Context(), "vol", "az")
	require.NoError(t, err)
	require.Equal(t, action.Volume{Type: "fast", IOPS: 5}, about)
	id, err = v.CreateSnapshot(t.Context(), "vol", "az", map[string]string{"k": "tag"})
	require.NoError(t, err)
	require.Equal(t, "vol,az,tag", id)
	require.ErrorContains(t, v.DeleteSnapshot(t.Context(), "snap"), "snapshot is in use")
	pv := action.FromJSON([]byte(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv1"}}`))
	id, err = v.VolumeID(t.Context(), pv)
	require.NoError(t, err)
	require.Equal(t, "id of pv1", id)
	changed, err := v.SetVolumeID(t.Context(), pv, "new")
	require.NoError(t, err)
	require.Equal(t, "new", annotationOf(t, changed, "volume"))
}
