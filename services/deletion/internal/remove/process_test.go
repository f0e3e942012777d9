package remove

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

const longEnough = 2 * time.Minute

// site is the deletion of a backup of pods o, p and q, with real plugin processes.
type site struct {
	*bed
	orders string
	runner *itemaction.Runner
}

func newSite(t *testing.T) *site {
	s := &site{bed: newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d")), orders: t.TempDir()}
	data, err := json.Marshal(newBackup(velerov1.BackupPhaseCompleted))
	require.NoError(t, err)
	backuptest.Write(t, s.store, "b", backuptest.Object("pods", "Pod", "a", "o"), backuptest.Object("pods", "Pod", "a", "p"), backuptest.Object("pods", "Pod", "a", "q"))
	s.store.Set(layout.BackupMetadata("b"), data)
	host, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: selfplugin.Directory(t, slices.Collect(maps.Keys(vendors))...), Namespace: "velero",
		Environ: append(os.Environ(), envOrders+"="+s.orders), AllowEnv: []string{envOrders}, Log: slog.New(slog.DiscardHandler),
		Clock: clock.RealClock{}, Limits: pluginhost.Limits{Stop: 100 * time.Millisecond},
	})
	require.NoError(t, err)
	require.Empty(t, host.Failures())
	s.runner = &itemaction.Runner{
		Open:     func(ctx context.Context, log *slog.Logger) itemaction.Session { return host.Open(ctx, log) },
		Discover: func(context.Context) (selection.Resolver, error) { return noNames{}, nil },
		Log:      slog.New(slog.DiscardHandler),
	}
	s.r.Actions = s.runner
	t.Cleanup(s.noProcessIsLeft)
	return s
}

// orderAction makes an action misbehave at an object; an empty order ends that.
func (s *site) orderAction(action, object, what string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(orderPath(s.orders, action, object), []byte(what), 0o600))
}

// readDiary returns the calls of all processes so far, in order.
func (s *site) readDiary() []string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.orders, diaryFile))
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(s.t, err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// noProcessIsLeft checks every process that was ever called.
func (s *site) noProcessIsLeft() {
	entries, err := filepath.Glob(filepath.Join(s.orders, "pid-*"))
	require.NoError(s.t, err)
	require.NotEmpty(s.t, entries)
	for _, entry := range entries {
		pid := strings.TrimPrefix(filepath.Base(entry), "pid-")
		cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		require.False(s.t, err == nil && len(cmdline) > 0 && strings.Contains(string(cmdline), "--log-level"), "process %s lives: %s", pid, cmdline)
	}
}

// TestPluginProcessesRunPerItemInOrderBeforeAnyFileIsRemoved, with an action that fails: the next
// request shows every item again.
func TestPluginProcessesRunPerItemInOrderBeforeAnyFileIsRemoved(t *testing.T) {
	s := newSite(t)
	keys := s.store.Keys()
	s.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpDelete && len(s.readDiary()) < 17 {
			return errors.New(key + " is removed too early")
		}
		return nil
	})
	s.orderAction("a.io/x", "p", "error")
	require.Equal(t, Done, s.processRequest("d"))
	require.Equal(t, []string{"delete item actions: plugin a.io/x: Execute of Pod a/p: the array is rebooting"}, s.readRequest("d").Status.Errors)
	require.Equal(t, []string{
		"a.io/b b o", "a.io/x b o", "b.io/a b o",
		"a.io/b b p", "a.io/x b p",
		"a.io/b b q", "a.io/x b q", "b.io/a b q",
	}, s.readDiary())
	require.Subset(t, s.store.Keys(), keys)
	require.Equal(t, velerov1.BackupPhaseDeleting, s.readBackup().Status.Phase)

	s.orderAction("a.io/x", "p", "")
	require.NoError(t, s.client.Create(t.Context(), newRequest("next")))
	require.Equal(t, Done, s.processRequest("next"))
	require.Len(t, s.readDiary()[8:], 9)
	require.Empty(t, s.store.Keys())
	require.Nil(t, s.readBackup())
	require.Nil(t, s.readRequest("next"))
}

// TestAnotherProcessTakesOverInTheMiddle of the actions: the first dies while one hangs, with its
// plugins.
func TestAnotherProcessTakesOverInTheMiddle(t *testing.T) {
	s := newSite(t)
	keys := s.store.Keys()
	s.orderAction("a.io/x", "p", "hang")
	ctx, die := context.WithCancel(t.Context())
	defer die()
	m := &mortal{die: die}
	first := s.newRemover(m.mortalClient(s.client), s.bed)
	first.Actions = s.runner
	ended := make(chan error, 1)
	go func() {
		_, err := first.Process(ctx, "d")
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(s.readDiary()) == 5 }, longEnough, 20*time.Millisecond)
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	die()
	require.Error(t, <-ended)
	s.noProcessIsLeft()
	require.Equal(t, keys, s.store.Keys())

	s.orderAction("a.io/x", "p", "")
	require.Equal(t, Done, s.processRequest("d"))
	require.Len(t, s.readDiary()[5:], 9, "each item is shown again")
	require.Empty(t, s.store.Keys())
	require.Nil(t, s.readBackup())
}
