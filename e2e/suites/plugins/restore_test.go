package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		beAPlugin()
	}
	goleak.VerifyTestMain(m)
}

// beAPlugin is the test binary as a plugin.
func beAPlugin() {
	registry := &plugin.Registry{}
	registry.RestoreItemAction("wait.example.com/config", []string{"configmaps"}, func(plugin.Env) (plugin.RestoreItemAction, error) { return &wait{}, nil })
	registry.BackupItemAction("note.example.com/config", []string{"configmaps"}, func(plugin.Env) (plugin.BackupItemAction, error) { return note{}, nil })
	registry.VolumeSnapshotter("disks.example.com/files", func(plugin.Env) (plugin.VolumeSnapshotter, error) { return &disks{}, nil })
	if err := serve.Run(registry); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// wait has ConfigMaps wait for the Secret that their data names under "waits-for", and does what
// "and" says.
type wait struct {
	plugin.Everything
	mu    sync.Mutex
	asked map[string]int
}

func (w *wait) Execute(_ context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	in.Item.SetAnnotations(map[string]string{"wait.example.com/seen": in.Restore.Name()})
	out := plugin.NewRestoreOutput(in.Item)
	data, ok := in.Item.Object["data"].(map[string]any)
	if !ok {
		return out, nil
	}
	if data["and"] == "crashes" {
		os.Exit(7)
	}
	name, ok := data["waits-for"].(string)
	if !ok {
		return out, nil
	}
	resource, name, _ := strings.Cut(name, "/")
	out.WithAdditionalItems(plugin.ResourceIdentifier{Resource: resource, Namespace: in.Item.GetNamespace(), Name: name})
	if name == "never" {
		out.WithItemsWaitTimeout(4 * time.Second)
	}
	return out.WithItemsWait(), nil
}

// AreAdditionalItemsReady says yes at the third question, never, or fails, as the item's name says.
func (w *wait) AreAdditionalItemsReady(_ context.Context, _ *plugin.Job, items []plugin.ResourceIdentifier) (bool, error) {
	if len(items) != 1 {
		return false, fmt.Errorf("asked about %d items", len(items))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked == nil {
		w.asked = map[string]int{}
	}
	w.asked[items[0].Name]++
	switch items[0].Name {
	case "never":
		return false, nil
	case "fails":
		return false, errors.New("no idea")
	}
	return w.asked[items[0].Name] >= 3, nil
}

// TestRestoreWaitsForWhatAPluginAsksFor restores through a plugin process on a real API server.
func TestRestoreWaitsForWhatAPluginAsksFor(t *testing.T) {
	dir := selfplugin.Directory(t, "wait")
	s := site.Start(t, site.Config{Args: map[string][]string{"restore-runner": {"--plugin-dir", dir}}})
	bucket, path := site.FileBucket(t, "plugins")
	s.ReachFiles(t, path, bucket)

	const from, to = "shop", "shop-2"
	s.Estate(t, from, 100, 500) // unrelated
	put := func(name string, data map[string]string) {
		require.NoError(t, s.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: from, Name: name}, Data: data}))
	}
	for _, name := range []string{"soon", "never", "fails"} {
		require.NoError(t, s.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: from, Name: name}}))
		put("a-"+name, map[string]string{"waits-for": "secrets/" + name})
	}
	put("one", map[string]string{"waits-for": "configmaps/two"})
	put("two", map[string]string{"waits-for": "configmaps/one"})
	put("crash", map[string]string{"and": "crashes"})

	s.Backup(t, "b", bucket, from)
	require.Equal(t, velerov1.BackupPhaseCompleted, s.BackupEnds(t, "b").Status.Phase)
	s.Restore(t, "r", "b", from, to)
	r := s.RestoreEnds(t, "r")
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase)
	results := string(bucket.ReadZipped(t, "restores/r/restore-r-results.gz"))
	for _, want := range []string{
		"configmaps shop-2/a-never: action wait.example.com/config: additional items are not ready after 4s",
		"configmaps shop-2/a-fails: whether additional items are ready is not known", "no idea",
		"waits for this object: restored before it", "plugin wait.example.com/config: Execute of ConfigMap shop/crash",
	} {
		require.Contains(t, results, want)
	}
	require.Equal(t, 3, r.Status.Errors, results)

	created := func(obj client.Object, name string) time.Time {
		require.NoError(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: to, Name: name}, obj), name)
		return obj.GetCreationTimestamp().Time
	}
	for _, name := range []string{"soon", "never", "fails"} {
		require.False(t, created(&corev1.ConfigMap{}, "a-"+name).Before(created(&corev1.Secret{}, name)), "the item comes first")
	}
	seen := &corev1.ConfigMap{}
	require.GreaterOrEqual(t, created(seen, "a-soon").Sub(created(&corev1.Secret{}, "soon")), time.Second)
	require.Equal(t, "r", seen.Annotations["wait.example.com/seen"])
	created(&corev1.ConfigMap{}, "one")
	created(&corev1.ConfigMap{}, "two")
	require.True(t, apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKey{Namespace: to, Name: "crash"}, seen)))
	want, err := s.Data(t.Context(), from)
	require.NoError(t, err)
	got, err := s.Data(t.Context(), to)
	require.NoError(t, err)
	require.Equal(t, want, got, "the unrelated are complete")
}
