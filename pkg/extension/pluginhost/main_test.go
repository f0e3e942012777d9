package pluginhost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

const (
	patience = time.Minute
	tick     = 20 * time.Millisecond
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv("VELERO_PLUGIN") != "":
		beAPlugin()
	case os.Getenv("BE_A_HOST") != "":
		beAHost(os.Getenv("BE_A_HOST"))
	}
	goleak.VerifyTestMain(m)
}

// logs keeps what was logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) logLines(t testing.TB) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []map[string]any
	decoder := json.NewDecoder(bytes.NewReader(l.text.Bytes()))
	for {
		var line map[string]any
		err := decoder.Decode(&line)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, line)
	}
}

// linesStartingWith returns the lines that begin so.
func (l *logs) linesStartingWith(t testing.TB, prefix string) []map[string]any {
	t.Helper()
	return slices.DeleteFunc(l.logLines(t), func(line map[string]any) bool { return !strings.HasPrefix(line["msg"].(string), prefix) })
}

func (l *logs) newLogger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// shortLimitsConfig is for tests: short limits where tests run into them, generous ones else.
func shortLimitsConfig(dir string) pluginhost.Config {
	return pluginhost.Config{
		Dir: dir, Namespace: "velero", LogLevel: "warn", Environ: append(os.Environ(), "OWN=kept", "HOLDFAST_NATS_URL=nats://user:secret@host"),
		AllowEnv: []string{"OWN"},
		Log:      slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	}
}

// newVendorHost has one binary in its directory, "vendor", which serves every behaviour under every kind.
func newVendorHost(t testing.TB, change func(*pluginhost.Config)) *pluginhost.Host {
	t.Helper()
	cfg := shortLimitsConfig(selfplugin.Directory(t, "vendor"))
	if change != nil {
		change(&cfg)
	}
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	return h
}

func openSession(t testing.TB, h *pluginhost.Host) *pluginhost.Session {
	t.Helper()
	s := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return s
}

func newPodObject() *action.Object {
	return action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"b"},"spec":{}}`))
}

func newVolumeObject() *action.Object {
	return action.FromJSON([]byte(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"b"},"spec":{}}`))
}

func theBackup(t testing.TB) *action.Backup {
	t.Helper()
	b, err := action.NewBackup(&velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b1"}})
	require.NoError(t, err)
	return b
}

func theRestore(t testing.TB) *action.Restore {
	t.Helper()
	r, err := action.NewRestore(&velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r1"}})
	require.NoError(t, err)
	return r
}

// actionNamed returns the action of that name.
func actionNamed[A action.Action](t testing.TB, all []A, name string) A {
	t.Helper()
	for _, a := range all {
		if a.Name() == name {
			return a
		}
	}
	require.Failf(t, "no such action", "%s", name)
	panic("unreachable")
}

func objectAnnotations(t testing.TB, o *action.Object) map[string]string {
	t.Helper()
	u, err := o.Copy()
	require.NoError(t, err)
	return u.GetAnnotations()
}

// eventuallyGone waits for the end of a process; zombies count as gone.
func eventuallyGone(t testing.TB, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return isProcessGone(pid) }, patience, tick, "process %d lives", pid)
}

func isProcessGone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(filepath.Join("/proc", formatInt(pid), "stat"))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}

// beAHost is the test binary as a host that is going to be killed: it uses a plugin and waits.
func beAHost(dir string) {
	cfg := shortLimitsConfig(dir)
	ctx := context.Background()
	h, err := pluginhost.New(ctx, cfg)
	if err != nil {
		panic(err)
	}
	s := h.Open(ctx, slog.New(slog.DiscardHandler))
	b, err := action.NewBackup(&velerov1.Backup{})
	if err != nil {
		panic(err)
	}
	for _, a := range s.BackupItems() {
		if a.Name() != "test.io/pid" {
			continue
		}
		r, err := a.Execute(ctx, newPodObject(), b)
		if err != nil {
			panic(err)
		}
		text, err := r.Object.JSON()
		if err != nil {
			panic(err)
		}
		if _, err := os.Stdout.Write(append(text, '\n')); err != nil {
			panic(err)
		}
	}
	if len(h.Plugins()) == 0 {
		panic(h.Failures())
	}
	select {}
}
