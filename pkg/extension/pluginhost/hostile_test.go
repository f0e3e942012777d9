package pluginhost_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

// behaviourCaller calls a plugin of one kind that is registered with some behaviour.
type behaviourCaller func(t *testing.T, s *pluginhost.Session, behaviour string) error

// callers have every kind and version, with the answers that each of them can give.
var callers = map[string]behaviourCaller{
	"BackupItemAction": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		_, err := actionNamed(t, s.BackupItems(), "test.io/"+behaviour).Execute(t.Context(), newPodObject(), theBackup(t))
		return err
	},
	"BackupItemActionV2": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		_, err := actionNamed(t, s.BackupItems(), "two.io/"+behaviour).Execute(t.Context(), newPodObject(), theBackup(t))
		return err
	},
	"RestoreItemAction": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		_, err := actionNamed(t, s.RestoreItems(), "test.io/"+behaviour).Execute(t.Context(), newPodObject(), newPodObject(), theRestore(t))
		return err
	},
	"RestoreItemActionV2": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		_, err := actionNamed(t, s.RestoreItems(), "two.io/"+behaviour).Execute(t.Context(), newPodObject(), newPodObject(), theRestore(t))
		return err
	},
	"AreAdditionalItemsReady": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		_, err := actionNamed(t, s.RestoreItems(), "two.io/"+behaviour).(action.Readiness).Ready(t.Context(), nil, theRestore(t))
		return err
	},
	"DeleteItemAction": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		return actionNamed(t, s.DeleteItems(), "test.io/"+behaviour).Execute(t.Context(), newPodObject(), theBackup(t))
	},
	"ItemBlockAction": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		_, err := actionNamed(t, s.ItemBlocks(), "test.io/"+behaviour).Related(t.Context(), newPodObject(), theBackup(t))
		return err
	},
	"ObjectStore": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		o, err := s.ObjectStore("test.io/"+behaviour, nil)
		require.NoError(t, err)
		_, err = o.ListObjects(t.Context(), "bucket", "")
		return err
	},
	"VolumeSnapshotter": func(t *testing.T, s *pluginhost.Session, behaviour string) error {
		v, err := s.VolumeSnapshotter("test.io/"+behaviour, nil)
		require.NoError(t, err)
		_, err = v.SetVolumeID(t.Context(), newVolumeObject(), "id")
		return err
	},
}

// hostile is what each behaviour costs the call, for the kinds where it costs something.
var hostile = map[string]struct {
	want error
	not  []string // kinds whose answer has no such part
}{
	"exit":     {pluginhost.ErrCrashed, nil},
	"panic":    {pluginhost.ErrPanicked, nil},
	"huge":     {pluginhost.ErrTooLarge, []string{"DeleteItemAction", "AreAdditionalItemsReady"}},
	"many":     {pluginhost.ErrTooLarge, []string{"DeleteItemAction", "AreAdditionalItemsReady", "ObjectStore", "VolumeSnapshotter"}},
	"garbled":  {pluginhost.ErrMalformed, []string{"DeleteItemAction", "AreAdditionalItemsReady", "ItemBlockAction"}},
	"other":    {pluginhost.ErrMalformed, []string{"DeleteItemAction", "AreAdditionalItemsReady", "ItemBlockAction", "ObjectStore", "RestoreItemAction", "RestoreItemActionV2"}},
	"empty":    {pluginhost.ErrMalformed, []string{"DeleteItemAction", "AreAdditionalItemsReady", "ItemBlockAction", "ObjectStore"}},
	"null":     {pluginhost.ErrMalformed, []string{"DeleteItemAction", "AreAdditionalItemsReady", "ItemBlockAction", "ObjectStore"}},
	"nameless": {pluginhost.ErrMalformed, []string{"DeleteItemAction", "AreAdditionalItemsReady", "ObjectStore", "VolumeSnapshotter"}},
	"flood":    {nil, nil},
}

func TestHostilePluginsCostTheirCallAndNothingElse(t *testing.T) {
	t.Parallel()
	h := newVendorHost(t, nil)
	for kind, call := range callers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := openSession(t, h)
			for behaviour, tc := range hostile {
				want := tc.want
				for _, k := range tc.not {
					if k == kind {
						want = nil
					}
				}
				err := call(t, s, behaviour)
				require.ErrorIs(t, err, want, behaviour)
				if want != nil {
					require.ErrorContains(t, err, ".io/"+behaviour+": ")
				}
				require.NoError(t, call(t, s, "echo"), "after %s", behaviour)
			}
		})
	}
}

func TestDyingPluginsSayWhy(t *testing.T) {
	err := callers["BackupItemAction"](t, openSession(t, newVendorHost(t, nil)), "exit")
	require.EqualError(t, err, "plugin test.io/exit: Execute of Pod a/b: plugin process died: exit status 4: fatal error: out of ideas")
}

// outlastLimits makes a call of a plugin that does not answer, and lets every limit pass until it
// returns.
func outlastLimits(fake *clocktesting.FakeClock, call func() error) error {
	returned := make(chan error, 1)
	go func() { returned <- call() }()
	for {
		select {
		case err := <-returned:
			return err
		case <-time.After(tick):
			if fake.HasWaiters() {
				fake.Step(time.Hour)
			}
		}
	}
}

// openHanging opens a session whose limits outlast runs into, but for that of the start.
func openHanging(t *testing.T, fake *clocktesting.FakeClock) *pluginhost.Session {
	t.Helper()
	s := openSession(t, newVendorHost(t, func(c *pluginhost.Config) { c.Clock, c.Limits.Start = fake, 10_000*time.Hour }))
	t.Cleanup(func() { _ = outlastLimits(fake, func() error { s.Close(); return nil }) })
	return s
}

func TestHangingAndFrozenPluginsAreReplaced(t *testing.T) {
	t.Parallel()
	for kind, call := range callers {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fake := clocktesting.NewFakeClock(time.Unix(0, 0))
			s := openHanging(t, fake)
			for _, behaviour := range []string{"hang", "freeze"} {
				require.ErrorIs(t, outlastLimits(fake, func() error { return call(t, s, behaviour) }), pluginhost.ErrTimeout)
			}
			require.NoError(t, call(t, s, "echo"))
		})
	}
}

// The call is not made again, and each answer ends the count of deaths.
func TestACrashAtTheNthCallCostsThatCall(t *testing.T) {
	s := openSession(t, newVendorHost(t, func(c *pluginhost.Config) { c.Limits = pluginhost.Limits{Deaths: 2} }))
	var failed []int
	for i := 1; i <= 10; i++ {
		if err := callers["DeleteItemAction"](t, s, "third"); err != nil {
			require.ErrorIs(t, err, pluginhost.ErrCrashed)
			failed = append(failed, i)
		}
	}
	require.Equal(t, []int{3, 6, 9}, failed)
}

func TestAPluginThatKeepsDyingIsLeftAloneForAWhileAndOthersOfItsBinaryAreNot(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	h := newVendorHost(t, func(c *pluginhost.Config) {
		c.Clock, c.Limits = fake, pluginhost.Limits{Deaths: 3, Backoff: time.Hour}
	})
	s, call := openSession(t, h), callers["DeleteItemAction"]
	for range 3 { // jobs: each would lose as many objects to it
		s.Close()
		s = openSession(t, h)
		require.ErrorIs(t, call(t, s, "exit"), pluginhost.ErrCrashed)
		require.NoError(t, call(t, s, "echo"), "another plugin's answers are not its own")
	}
	err := call(t, s, "exit")
	require.ErrorIs(t, err, pluginhost.ErrStopped)
	require.ErrorContains(t, err, "exit status 4", "the last death is told")
	require.NotErrorIs(t, err, pluginhost.ErrCrashed, "the call was not made, so it did not die under it")
	require.NoError(t, call(t, s, "echo"))
	require.ErrorIs(t, callers["BackupItemAction"](t, s, "exit"), pluginhost.ErrCrashed, "it has the name, and is another kind")
	fake.Step(time.Hour)
	require.ErrorIs(t, call(t, s, "exit"), pluginhost.ErrCrashed, "one more try")
	require.ErrorIs(t, call(t, s, "exit"), pluginhost.ErrStopped, "which failed")
	require.NoError(t, call(t, s, "echo"))
}

func TestABinaryThatDoesNotStartIsLeftAloneForAWhile(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	var dir string
	h := newVendorHost(t, func(c *pluginhost.Config) {
		dir = c.Dir
		c.Clock, c.Limits = fake, pluginhost.Limits{Deaths: 2, Backoff: time.Hour}
	})
	s := openSession(t, h)
	require.NoError(t, os.Remove(dir+"/vendor"))
	for range 2 {
		require.ErrorIs(t, callers["DeleteItemAction"](t, s, "echo"), pluginhost.ErrStart)
	}
	require.ErrorIs(t, callers["DeleteItemAction"](t, s, "change"), pluginhost.ErrStopped)
}

func TestCallsThatOnlyReadAreMadeOnceMoreAfterACrash(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	for range 7 { // each process dies at its third call
		require.NoError(t, callers["ItemBlockAction"](t, s, "third"))
	}
	err := callers["ItemBlockAction"](t, s, "exit")
	require.ErrorIs(t, err, pluginhost.ErrCrashed, "once, not for ever")
	failed := new(pluginhost.Error)
	require.ErrorAs(t, err, &failed)
	require.True(t, failed.Sent)
}

func TestThePluginIsNotToldTheCallersDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	r, err := actionNamed(t, openSession(t, newVendorHost(t, nil)).BackupItems(), "test.io/deadline").Execute(ctx, newPodObject(), theBackup(t))
	require.NoError(t, err)
	require.Equal(t, "false", objectAnnotations(t, r.Object)["deadline"])
}

func TestACallersDeadlineEndsTheCall(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	require.NoError(t, callers["DeleteItemAction"](t, s, "echo"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := actionNamed(t, s.DeleteItems(), "test.io/hang").Execute(ctx, newPodObject(), theBackup(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	err = actionNamed(t, s.DeleteItems(), "test.io/echo").Execute(ctx, newPodObject(), theBackup(t))
	failed := new(pluginhost.Error)
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.Sent, "it was over before the call")
}

func TestOneCrashUnderManyCallsIsOneDeath(t *testing.T) {
	h := newVendorHost(t, func(c *pluginhost.Config) { c.Limits = pluginhost.Limits{Deaths: 2} })
	var out logs
	s, backup := h.Open(t.Context(), out.newLogger()), theBackup(t)
	defer s.Close()
	ctx := t.Context()
	hang, exit := actionNamed(t, s.DeleteItems(), "test.io/hang"), actionNamed(t, s.DeleteItems(), "test.io/exit")
	require.NoError(t, callers["DeleteItemAction"](t, s, "echo"))
	errs := make(chan error)
	for range 20 {
		go func() { errs <- hang.Execute(ctx, newPodObject(), backup) }()
	}
	require.Eventually(t, func() bool { return len(out.linesStartingWith(t, "hanging")) == 20 }, patience, tick)
	require.ErrorIs(t, exit.Execute(ctx, newPodObject(), backup), pluginhost.ErrCrashed)
	for range 20 {
		require.ErrorIs(t, <-errs, pluginhost.ErrCrashed)
	}
	require.NoError(t, callers["DeleteItemAction"](t, s, "echo"), "one death is not two")
}

func TestACancelledJobDoesNotWaitForItsCall(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	why := errors.New("the backup was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	hang, backup := actionNamed(t, s.DeleteItems(), "test.io/hang"), theBackup(t)
	go func() { done <- hang.Execute(ctx, newPodObject(), backup) }()
	cancel(why)
	require.ErrorIs(t, <-done, why)
	require.NoError(t, callers["DeleteItemAction"](t, s, "echo"))
}

func TestTheOutputOfPluginsIsLoggedAgainAndBounded(t *testing.T) {
	h := newVendorHost(t, func(c *pluginhost.Config) { c.Limits = pluginhost.Limits{LogRate: 0.001, LogBurst: 100} })
	var out logs
	s := h.Open(t.Context(), out.newLogger().With("backup", "velero/b1"))
	require.NoError(t, callers["DeleteItemAction"](t, s, "flood"))
	s.Close()
	lines := slices.DeleteFunc(out.logLines(t), func(l map[string]any) bool { return l["msg"] == "plugin address" })
	require.Len(t, lines, 100)
	first := lines[0]
	delete(first, "time")
	require.Equal(t, map[string]any{"level": "ERROR", "msg": "line 0", "logSource": "x.go:1", "plugin": "vendor", "backup": "velero/b1"}, first)
	last := lines[99]
	require.Equal(t, "ERROR", last["level"], "errors that were dropped count")
	require.Equal(t, "plugin logs too much: lines were dropped", last["msg"])
	require.EqualValues(t, 5000-99+16+1, last["lines"], "the rest, the long line in 64 KiB pieces, the odd one")
}

func TestLinesThatAreNotTheFrameworksAreDebug(t *testing.T) {
	var out logs
	s := newVendorHost(t, nil).Open(t.Context(), out.newLogger())
	require.NoError(t, callers["DeleteItemAction"](t, s, "flood"))
	require.Error(t, callers["DeleteItemAction"](t, s, "exit"))
	s.Close()
	long := out.linesStartingWith(t, "yyy")
	require.Len(t, long, 16)
	for _, line := range slices.Concat(long, out.linesStartingWith(t, "fatal error: out of ideas")) {
		require.LessOrEqual(t, len(line["msg"].(string)), 64<<10)
		require.Equal(t, "DEBUG", line["level"])
	}
}

func TestBinariesThatAreNoPluginsAreFailuresNotReasonsToStop(t *testing.T) {
	t.Parallel()
	dir := selfplugin.Directory(t, "babble", "elsewhere", "endless", "exit", "garbage", "netrpc", "sick", "vendor", "sub/lister-order-2")
	writeFile(t, dir+"/notes.txt", "not executable", 0o600)
	writeFile(t, dir+"/broken", "\x7fELF nonsense", 0o700)
	var out logs
	cfg := shortLimitsConfig(dir)
	cfg.Log = out.newLogger()
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	said := map[string]string{}
	for _, f := range h.Failures() {
		said[strings.TrimPrefix(f.Path, dir+"/")] = f.Err.Error()
	}
	for name, want := range map[string]string{
		"babble":    "Unrecognized remote plugin message: hello, I am a plugin",
		"broken":    "exec format error",
		"elsewhere": "does not listen on a unix socket",
		"endless":   "Unrecognized remote plugin message",
		"exit":      "panic: no licence",
		"garbage":   "died",
		"netrpc":    "unsupported plugin protocol",
		"sick":      "exit status 3",
	} {
		require.Contains(t, said[name], want, name)
	}
	require.Len(t, said, 8)
	require.NotEmpty(t, h.Plugins())
	require.Contains(t, out.text.String(), "notes.txt")
	require.NoError(t, callers["DeleteItemAction"](t, openSession(t, h), "echo"))
}

func TestRegistrationsAreCheckedOneByOne(t *testing.T) {
	h, err := pluginhost.New(t.Context(), shortLimitsConfig(selfplugin.Directory(t, "lister-bad")))
	require.NoError(t, err)
	require.Len(t, h.Plugins(), 1)
	require.Equal(t, "lister.io/fine", h.Plugins()[0].Name)
	var said []string
	for _, f := range h.Failures() {
		require.ErrorIs(t, f, pluginhost.ErrMalformed)
		said = append(said, f.Error())
	}
	all := strings.Join(said, "\n")
	for _, part := range []string{`unknown kind "Spaceship"`, `unknown kind "PluginLister"`, `"noslash"`, `"UPPER/x"`, `"a.io/"`, `"a.io/x/y"`, "registered by"} {
		require.Contains(t, all, part)
	}
	require.Len(t, said, 7)
}

func TestActionsRunInTheOrderOfTheirNamesAndOnceEach(t *testing.T) {
	cfg := shortLimitsConfig(selfplugin.Directory(t, "lister-order-1", "lister-order-2"))
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	s := openSession(t, h)
	require.Equal(t, []string{"order.io/a", "order.io/b", "order.io/both", "order.io/c", "order.io/z"}, actionNames(s.BackupItems()))
	require.Equal(t, []string{"a.io/b", "a.io/x", "b.io/a"}, actionNames(s.DeleteItems()))
	require.Empty(t, s.RestoreItems(), "Velero's CSI actions run only with the feature")
	cfg.Features = []string{"EnableCSI"}
	h, err = pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, []string{"velero.io/csi-thing"}, actionNames(openSession(t, h).RestoreItems()))
}

func actionNames[A action.Action](all []A) []string {
	var out []string
	for _, a := range all {
		out = append(out, a.Name())
	}
	return out
}

func pidOf(t *testing.T, s *pluginhost.Session) (pid, child int) {
	t.Helper()
	r, err := actionNamed(t, s.BackupItems(), "test.io/pid").Execute(t.Context(), newPodObject(), theBackup(t))
	require.NoError(t, err)
	said := objectAnnotations(t, r.Object)
	pid, err = strconv.Atoi(said["pid"])
	require.NoError(t, err)
	child, err = strconv.Atoi(said["child"])
	require.NoError(t, err)
	return pid, child
}

func TestProcessesEndWithTheSessionAndTakeTheirChildrenAlong(t *testing.T) {
	cfg := shortLimitsConfig(selfplugin.Directory(t, "parent"))
	cfg.Clock, cfg.Limits = clock.RealClock{}, pluginhost.Limits{Stop: 200 * time.Millisecond}
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	s := openSession(t, h)
	pid, child := pidOf(t, s)
	again, _ := pidOf(t, s)
	require.Equal(t, pid, again, "one process per binary and job")
	other := openSession(t, h)
	second, _ := pidOf(t, other)
	require.NotEqual(t, pid, second)
	require.False(t, isProcessGone(child))
	s.Close()
	require.True(t, isProcessGone(pid))
	eventuallyGone(t, child)
	require.False(t, isProcessGone(second))
	_, err = actionNamed(t, s.BackupItems(), "test.io/pid").Execute(t.Context(), newPodObject(), theBackup(t))
	require.ErrorIs(t, err, pluginhost.ErrClosed)
}
