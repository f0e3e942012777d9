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
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

const longEnough = 2 * time.Minute

// site is deletions with real plugin processes on a real directory.
type site struct {
	*bed
	dir, orders string
	runner      *itemaction.Runner

	mu    sync.Mutex
	fault func(op, key string) error
}

func newSite(t *testing.T, limits pluginhost.Limits, names ...string) *site {
	s := &site{bed: newBed(t), dir: t.TempDir(), orders: t.TempDir()}
	for _, name := range names {
		s.addBackup(name)
	}
	plugins := selfplugin.Directory(t, slices.Collect(maps.Keys(vendors))...)
	limits.Stop = 100 * time.Millisecond
	host, err := pluginhost.New(t.Context(), pluginhost.Config{
		Dir: plugins, Namespace: "velero", Environ: append(os.Environ(), envOrders+"="+s.orders), AllowEnv: []string{envOrders}, Log: slog.New(slog.DiscardHandler),
		Clock: clock.RealClock{}, Limits: limits,
	})
	require.NoError(t, err)
	require.Empty(t, host.Failures())
	s.runner = &itemaction.Runner{
		Open:     func(ctx context.Context, log *slog.Logger) itemaction.Session { return host.Open(ctx, log) },
		Discover: func(context.Context) (selection.Resolver, error) { return noNames{}, nil },
		Clock:    clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	}
	s.r.Actions, s.r.Locations = s.runner, s
	t.Cleanup(s.noProcessIsLeft)
	return s
}

// addBackup makes a backup of pods o, p and q, and a request for its deletion of the same name.
func (s *site) addBackup(name string) {
	s.t.Helper()
	k, d := newBackup(velerov1.BackupPhaseCompleted), newRequest(name)
	k.Name, k.UID, d.Spec.BackupName = name, types.UID(name+"-uid"), name
	require.NoError(s.t, s.client.Create(s.t.Context(), k))
	require.NoError(s.t, s.client.Create(s.t.Context(), d))
	store, err := filestore.Open(s.dir)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, store.Close()) }()
	items := []backuptest.Item{backuptest.Object("pods", "Pod", "a", "o"), backuptest.Object("pods", "Pod", "a", "p"), backuptest.Object("pods", "Pod", "a", "q")}
	backuptest.Write(s.t, store, name, items...)
	data, err := json.Marshal(k)
	require.NoError(s.t, err)
	require.NoError(s.t, objectstore.PutBytes(s.t.Context(), store, layout.BackupMetadata(name), data))
}

// Open implements Locations: the directory, with faults.
func (s *site) Open(context.Context, *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	store, err := filestore.Open(s.dir)
	return &faulty{Store: store, site: s}, err
}

type faulty struct {
	objectstore.Store
	site *site
}

func (f *faulty) Delete(ctx context.Context, key string) error {
	f.site.mu.Lock()
	fault := f.site.fault
	f.site.mu.Unlock()
	if fault != nil {
		if err := fault("delete", key); err != nil {
			return err
		}
	}
	return f.Store.Delete(ctx, key)
}

func (s *site) injectFault(fault func(op, key string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// orderAction makes an action misbehave at an object; an empty order ends that.
func (s *site) orderAction(action, object, what string) {
	s.t.Helper()
	path := orderPath(s.orders, action, object)
	if what == "" {
		require.NoError(s.t, os.Remove(path))
		return
	}
	require.NoError(s.t, os.WriteFile(path, []byte(what), 0o600))
	if what == "hang" {
		if err := syscall.Mkfifo(path+".pipe", 0o600); !errors.Is(err, os.ErrExist) {
			require.NoError(s.t, err)
		}
	}
}

// releaseAction lets an action that hangs go on.
func (s *site) releaseAction(action, object string) {
	s.t.Helper()
	pipe, err := os.OpenFile(orderPath(s.orders, action, object)+".pipe", os.O_WRONLY, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, pipe.Close())
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

// diarySince returns the calls after the first n.
func (s *site) diarySince(n int) []string { return s.readDiary()[n:] }

func (s *site) listFiles() []string {
	s.t.Helper()
	store, err := filestore.Open(s.dir)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, store.Close()) }()
	var keys []string
	require.NoError(s.t, store.List(s.t.Context(), "", func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	}))
	return keys
}

// noProcessIsLeft checks every process that was ever called.
func (s *site) noProcessIsLeft() {
	entries, err := filepath.Glob(filepath.Join(s.orders, "pid-*"))
	require.NoError(s.t, err)
	for _, entry := range entries {
		pid := strings.TrimPrefix(filepath.Base(entry), "pid-")
		cmdline, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		require.False(s.t, err == nil && len(cmdline) > 0 && strings.Contains(string(cmdline), "--log-level"), "process %s lives: %s", pid, cmdline)
	}
}

// requestAgain makes a new request for the deletion of a backup.
func (s *site) requestAgain(name, of string) {
	s.t.Helper()
	d := newRequest(name)
	d.Spec.BackupName = of
	require.NoError(s.t, s.client.Create(s.t.Context(), d))
	require.Equal(s.t, Done, s.processRequest(name))
}

var dataOfOne = []string{layout.BackupManifest("one"), layout.BackupTarball("one"), layout.BackupMetadata("one")}

// TestPluginProcessesRunPerItemInOrderBeforeAnyFileIsRemoved, with an action that fails and a
// bucket that refuses: each request does only what is left.
func TestPluginProcessesRunPerItemInOrderBeforeAnyFileIsRemoved(t *testing.T) {
	s := newSite(t, pluginhost.Limits{}, "one")
	s.injectFault(func(_, key string) error {
		if len(s.readDiary()) < 10 {
			return errors.New(key + " is removed too early")
		}
		return nil
	})
	s.orderAction("a.io/x", "p", "error")
	require.Equal(t, Done, s.processRequest("one"))
	require.Equal(t, []string{"delete item actions: plugin a.io/x: Execute of Pod a/p: the array is rebooting"}, s.readRequest("one").Status.Errors)
	require.Equal(t, []string{
		"a.io/b one o", "a.io/x one o", "b.io/a one o",
		"a.io/b one p", "a.io/x one p",
		"a.io/b one q", "a.io/x one q", "b.io/a one q",
	}, s.readDiary())
	left := s.listFiles()
	require.Subset(t, left, dataOfOne)
	require.Len(t, left, len(dataOfOne)+1, "and the record")
	require.Equal(t, velerov1.BackupPhaseDeleting, findObject(s.bed, &velerov1.Backup{}, "one").Status.Phase)

	s.orderAction("a.io/x", "p", "")
	s.injectFault(func(_, key string) error {
		if key == layout.BackupTarball("one") {
			return errors.New("object is locked")
		}
		return nil
	})
	s.requestAgain("next", "one")
	require.Equal(t, []string{"a.io/x one p", "b.io/a one p"}, s.diarySince(8))
	require.Contains(t, s.readRequest("next").Status.Errors[0], "object is locked")
	require.NotNil(t, findObject(s.bed, &velerov1.Backup{}, "one"))

	s.injectFault(nil)
	s.requestAgain("last", "one")
	require.Empty(t, s.diarySince(10), "nothing is left to do but to remove the files")
	require.Empty(t, s.listFiles())
	require.Nil(t, findObject(s.bed, &velerov1.Backup{}, "one"))
	require.Nil(t, s.readRequest("last"))
}

// TestAnotherProcessTakesOverInTheMiddle of the actions: the first dies while one hangs, with its
// plugins.
func TestAnotherProcessTakesOverInTheMiddle(t *testing.T) {
	s := newSite(t, pluginhost.Limits{}, "one")
	s.orderAction("a.io/x", "p", "hang")
	ctx, die := context.WithCancel(t.Context())
	m := &mortal{die: die}
	first := s.newRemover(m.mortalClient(s.client), s.bed)
	first.Actions, first.Locations = s.runner, s
	ended := make(chan error, 1)
	go func() {
		_, err := first.Process(ctx, "one")
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(s.readDiary()) == 5 && len(s.listFiles()) == len(dataOfOne)+1 }, longEnough, 20*time.Millisecond,
		"what was done is recorded while the next is under way")
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
	die()
	require.Error(t, <-ended)
	require.Subset(t, s.listFiles(), dataOfOne)

	s.orderAction("a.io/x", "p", "")
	require.Equal(t, Done, s.processRequest("one"))
	require.Equal(t, []string{"a.io/x one p", "b.io/a one p", "a.io/b one q", "a.io/x one q", "b.io/a one q"}, s.diarySince(5))
	require.Empty(t, s.listFiles())
	require.Nil(t, findObject(s.bed, &velerov1.Backup{}, "one"))
}

// TestAHungPluginDelaysOnlyItsOwnDeletion of two at once.
func TestAHungPluginDelaysOnlyItsOwnDeletion(t *testing.T) {
	s := newSite(t, pluginhost.Limits{}, "one", "two")
	s.orderAction("a.io/b", "o", "hang")
	ended := make(chan error, 1)
	go func() {
		_, err := s.r.Process(t.Context(), "one")
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(s.readDiary()) == 1 }, longEnough, 20*time.Millisecond)
	s.orderAction("a.io/b", "o", "")
	require.Equal(t, Done, s.processRequest("two"))
	require.Nil(t, findObject(s.bed, &velerov1.Backup{}, "two"))
	require.ElementsMatch(t, dataOfOne, s.listFiles())
	require.Len(t, s.diarySince(1), 9)
	require.Empty(t, ended)
	s.releaseAction("a.io/b", "o")
	require.NoError(t, <-ended)
	require.Empty(t, s.listFiles())
	require.Len(t, s.readDiary(), 18)
}

func TestAMissingTarballIsShownToNoPlugin(t *testing.T) {
	s := newSite(t, pluginhost.Limits{}, "one")
	s.orderAction("a.io/b", atAppliesTo, "error")
	require.NoError(t, os.Remove(filepath.Join(s.dir, layout.BackupTarball("one"))))
	require.Equal(t, Done, s.processRequest("one"))
	require.Empty(t, s.readDiary())
	require.Empty(t, s.listFiles())
	require.Nil(t, findObject(s.bed, &velerov1.Backup{}, "one"))
}

// TestHostilePluginsCostTheirItemsAnError, and nothing else: the other items are complete, the
// backup stays, and the next request does what is left.
func TestHostilePluginsCostTheirItemsAnError(t *testing.T) {
	for what, says := range map[string]string{
		"exit": "plugin process died: exit status 4", "panic": "plugin panicked: index out of range", "hang": "no answer in time", "flood": "",
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t, pluginhost.Limits{Execute: 10 * time.Second}, "one")
			s.orderAction("a.io/x", "p", what)
			require.Equal(t, Done, s.processRequest("one"))
			want := []string{
				"a.io/b one o", "a.io/x one o", "b.io/a one o", "a.io/b one p", "a.io/x one p", "b.io/a one p",
				"a.io/b one q", "a.io/x one q", "b.io/a one q",
			}
			if says == "" {
				if r := s.readRequest("one"); r != nil {
					require.Empty(t, r.Status.Errors)
				}
				require.Equal(t, want, s.readDiary())
				require.Empty(t, s.listFiles())
				return
			}
			require.Equal(t, slices.Delete(want, 5, 6), s.readDiary())
			texts := s.readRequest("one").Status.Errors
			require.Len(t, texts, 1)
			require.Contains(t, texts[0], "delete item actions: plugin a.io/x: Execute of Pod a/p: "+says)
			require.Subset(t, s.listFiles(), dataOfOne)
			s.orderAction("a.io/x", "p", "")
			s.requestAgain("next", "one")
			require.Equal(t, []string{"a.io/x one p", "b.io/a one p"}, s.diarySince(8))
			require.Empty(t, s.listFiles())
		})
	}
}

func TestAPluginThatCannotSayWhatItWantsKeepsTheBackup(t *testing.T) {
	for what, tc := range map[string]struct{ action, at, order, says string }{
		"does not start": {"first", atStart, "x", "plugin a.io/x: AppliesTo: plugin process did not start: "},
		"fails":          {"a.io/x", atAppliesTo, "error", "plugin a.io/x: AppliesTo: no answer for you"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t, pluginhost.Limits{}, "one")
			s.orderAction(tc.action, tc.at, tc.order)
			require.Equal(t, Done, s.processRequest("one"))
			require.Contains(t, s.readRequest("one").Status.Errors[0], tc.says)
			require.ElementsMatch(t, dataOfOne, s.listFiles())
			require.Empty(t, s.readDiary())
		})
	}
	s := newSite(t, pluginhost.Limits{}, "one")
	s.orderAction("a.io/x", atAppliesTo, "unknown")
	require.Equal(t, Done, s.processRequest("one"))
	require.Empty(t, s.listFiles())
	require.Len(t, s.readDiary(), 6, "a resource that nobody knows matches nothing")
}
