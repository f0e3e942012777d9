package job_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// serveActions is the test binary as a plugin.
func serveActions() {
	registry := &plugin.Registry{}
	registry.RestoreItemAction("good.io/wait", []string{"configmaps"}, func(env plugin.Env) (plugin.RestoreItemAction, error) { return &good{env: env}, nil })
	registry.RestoreItemAction("hostile.io/x", []string{"configmaps"}, func(env plugin.Env) (plugin.RestoreItemAction, error) { return &hostile{env: env}, nil })
	registry.VolumeSnapshotter("array.io/disks", func(plugin.Env) (plugin.VolumeSnapshotter, error) { return &array{}, nil })
	if err := serve.Run(registry); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func otherIdentifier(name string) plugin.ResourceIdentifier {
	return plugin.ResourceIdentifier{Resource: "configmaps", Namespace: "a", Name: name}
}

// good has c000 wait for c001, which is ready when it was asked for three times.
type good struct {
	plugin.Everything
	env   plugin.Env
	mu    sync.Mutex
	asked int
}

func (g *good) Execute(_ context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	in.Item.SetAnnotations(map[string]string{"good.io/seen": "yes"})
	out := plugin.NewRestoreOutput(in.Item)
	if in.Item.GetName() == "c000" {
		g.env.Log.Warn("waiting for c001")
		out = out.WithAdditionalItems(otherIdentifier("c001")).WithItemsWait()
	}
	return out, nil
}

func (g *good) AreAdditionalItemsReady(_ context.Context, _ *plugin.Job, items []plugin.ResourceIdentifier) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(items) != 1 || items[0] != otherIdentifier("c001") {
		return false, fmt.Errorf("asked about %v", items)
	}
	g.asked++
	return g.asked >= 3, nil
}

// hostile behaves badly from c010 on.
type hostile struct {
	plugin.Everything
	env plugin.Env
}

func (h *hostile) Execute(_ context.Context, in *plugin.RestoreInput) (*plugin.RestoreOutput, error) {
	out := plugin.NewRestoreOutput(in.Item)
	switch in.Item.GetName() {
	case "c010":
		os.Exit(3)
	case "c011":
		select {}
	case "c012":
		panic("hostile")
	case "c013":
		in.Item.Object["data"] = map[string]any{"k": strings.Repeat("x", 20<<20)}
	case "c014":
		in.Item.SetName("another")
	case "c015":
		in.Item.SetKind("Secret")
	case "c016":
		return out.WithAdditionalItems(otherIdentifier("c017")), nil
	case "c017":
		return out.WithAdditionalItems(otherIdentifier("c016")), nil
	case "c018":
		return out.WithAdditionalItems(plugin.ResourceIdentifier{Group: "nowhere.io", Resource: "things", Name: "x"}), nil
	case "c019":
		for range 300 {
			h.env.Log.Info("flood", "of", strings.Repeat("y", 200))
		}
	case "c020":
		return out.WithAdditionalItems(otherIdentifier("c021")).WithItemsWaitTimeout(2 * time.Second), nil
	case "c022":
		return nil, errors.New("no such thing")
	}
	return out, nil
}

func (h *hostile) AreAdditionalItemsReady(ctx context.Context, _ *plugin.Job, _ []plugin.ResourceIdentifier) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

// usePlugin gives the bench's runner this binary as a plugin.
func usePlugin(t *testing.T, b *bench) {
	t.Helper()
	dir := selfplugin.Directory(t, "actions")
	host, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: dir, Namespace: "velero", LogLevel: "info", Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
		Limits: pluginhost.Limits{Execute: 15 * time.Second},
	})
	require.NoError(t, err)
	require.Empty(t, host.Failures())
	b.config.ReadyTimeout = time.Minute
	b.config.Actions = func(ctx context.Context, note func(joblog.Entry)) job.ActionSet {
		s := host.Open(ctx, pluginhost.JobLog(slog.LevelInfo, note))
		items, hidden := action.Merge(nil, s.RestoreItems())
		require.Empty(t, hidden)
		return job.ActionSet{Items: items, Close: s.Close, IsProcessCrash: func(err error) bool { return errors.Is(err, pluginhost.ErrCrashed) }, Warnings: []string{"one is left out"}}
	}
	b.runner = newRunner(b.config)
}

func TestRestoreThroughPluginProcesses(t *testing.T) {
	b := newBench(t)
	usePlugin(t, b)
	b.storeTarball(t, 30)
	b.createRestore(t, true)
	require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))

	r := b.getRestore(t)
	results, log := b.readGzip(t, layout.RestoreResults("r")), b.readGzip(t, layout.RestoreLog("r"))
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, r.Status.Phase, r.Status.FailureReason)
	list := b.readGzip(t, layout.RestoreResourceList("r"))
	for _, name := range []string{"c010", "c011", "c012", "c013", "c022"} {
		require.Contains(t, list, "a/"+name+"(failed)")
		require.Contains(t, results, "configmaps a/"+name+": ")
	}
	require.Equal(t, 25, strings.Count(list, "(created)"), list)
	require.NotNil(t, b.cluster.Object("/api/v1/namespaces/a/configmaps/another"), "a plugin may rename an object")
	require.NotNil(t, b.cluster.Object("/api/v1/namespaces/a/secrets/c015"), "and make it another kind")
	require.Nil(t, b.cluster.Object("/api/v1/namespaces/a/configmaps/c014"))
	require.Contains(t, results, "plugin hostile.io/x: Execute of ConfigMap a/c010")
	require.Contains(t, results, "additional items are not ready after 2s")
	require.Contains(t, results, "waits for this object: restored before it")
	require.Contains(t, results, "additional item things.nowhere.io x, which action hostile.io/x asks for")
	require.Contains(t, results, "waiting for c001", "what a plugin logs as a warning is one")
	require.Contains(t, results, "one is left out")
	require.Contains(t, log, "flood")
	require.Equal(t, r.Status.Errors, strings.Count(log, "level=error"))
	require.Equal(t, r.Status.Warnings, strings.Count(log, "level=warning"))
	c0 := kubetest.Meta(b.cluster.Object("/api/v1/namespaces/a/configmaps/c000"))
	require.Equal(t, object{"good.io/seen": "yes"}, c0["annotations"])
	require.NotContains(t, results, "asked about")
	noChildren(t)
}

// noChildren fails if a process of this one is left.
func noChildren(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		tasks, err := filepath.Glob("/proc/self/task/*/children")
		require.NoError(t, err)
		for _, task := range tasks {
			if children, err := os.ReadFile(task); err == nil && len(children) > 0 {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond)
}
