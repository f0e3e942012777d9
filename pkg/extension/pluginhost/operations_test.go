package pluginhost_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

func openOperations(t testing.TB, h *pluginhost.Host) *pluginhost.Operations {
	t.Helper()
	o := h.Operations(t.Context(), slog.New(slog.DiscardHandler))
	t.Cleanup(o.Close)
	return o
}

// newStarterHost has the SDK's asynchronous actions.
func newStarterHost(t testing.TB, change func(*pluginhost.Config)) (*pluginhost.Host, *pluginhost.Operations) {
	t.Helper()
	cfg := shortLimitsConfig(selfplugin.Directory(t, "starters"))
	if change != nil {
		change(&cfg)
	}
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, h.Failures())
	return h, openOperations(t, h)
}

func veleroOperation(kind, id string) action.Operation {
	return action.Operation{Kind: kind, Action: "two.io/start", ID: id}
}

func inProcessOperation(id string) action.Operation {
	return action.Operation{Kind: "AsyncBackupItemAction", Action: "a.io/inside", ID: id}
}

func externalOperation(id string) action.Operation {
	return action.Operation{Kind: "AsyncBackupItemAction", Action: "a.io/outside", ID: id}
}

// startOperation begins an operation of the name, which has that ID.
func startOperation(t *testing.T, s *pluginhost.Session, name, key string) action.BackupResult {
	t.Helper()
	r, err := actionNamed(t, s.BackupItems(), name).(action.BackupStarter).Start(t.Context(), newPodObject(), theBackup(t), key)
	require.NoError(t, err)
	require.Equal(t, key, r.OperationID)
	return r
}

// answeringProcess is the process that answers about the operation.
func answeringProcess(t *testing.T, o *pluginhost.Operations, op action.Operation) int {
	t.Helper()
	p, err := o.Progress(t.Context(), op, theBackup(t).JSON())
	require.NoError(t, err)
	pid, err := strconv.Atoi(p.Description)
	require.NoError(t, err)
	return pid
}

func TestOperationsOfVelerosKindsAreAskedAbout(t *testing.T) {
	t.Parallel()
	o := openOperations(t, newVendorHost(t, nil))
	for _, kind := range []string{"BackupItemActionV2", "RestoreItemActionV2"} {
		p, err := o.Progress(t.Context(), veleroOperation(kind, "failed"), []byte(kind))
		require.NoError(t, err)
		require.Equal(t, action.Progress{Done: true, Err: "disk full", Completed: 1, Total: 2, Units: "Bytes", Description: kind}, p, "it gets the job")
		_, err = o.Progress(t.Context(), veleroOperation(kind, "none"), nil)
		require.ErrorIs(t, err, pluginhost.ErrMalformed)
		_, err = o.Progress(t.Context(), veleroOperation(kind, "gone"), nil)
		require.ErrorContains(t, err, "plugin two.io/start: Progress: no such operation")
		require.NotErrorIs(t, err, action.ErrUnknownOperation, "that may be of any origin")
		lines, err := collectLines(o.Logs(t.Context(), veleroOperation(kind, "x"), nil, time.Time{}, false))
		require.ErrorIs(t, err, action.ErrNoLogs)
		require.Empty(t, lines)
		require.Equal(t, answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x")), answeringProcess(t, o, veleroOperation(kind, "x")), "one process per binary")
	}
	accepted, err := o.Cancel(t.Context(), veleroOperation("RestoreItemActionV2", "x"), nil, time.Minute)
	require.NoError(t, err)
	require.True(t, accepted)
	accepted, err = o.Cancel(t.Context(), veleroOperation("BackupItemActionV2", "x"), nil, time.Minute)
	require.EqualError(t, err, "plugin two.io/start: Cancel: cancelled too late")
	require.False(t, accepted)
}

func TestAnActionThatIsNotThereIsUnknown(t *testing.T) {
	t.Parallel()
	o := openOperations(t, newVendorHost(t, nil))
	for _, op := range []action.Operation{
		{Kind: "BackupItemActionV2", Action: "nobody.io/x", ID: "x"}, {Kind: "BackupItemAction", Action: "test.io/echo", ID: "x"},
		{Kind: "AsyncBackupItemAction", Action: "two.io/start", ID: "x"}, {Kind: "Nonsense", Action: "two.io/start", ID: "x"}, {},
	} {
		_, err := o.Progress(t.Context(), op, nil)
		require.ErrorIs(t, err, action.ErrUnknownAction)
		_, err = o.Cancel(t.Context(), op, nil, 0)
		require.ErrorIs(t, err, action.ErrUnknownAction)
		lines, err := collectLines(o.Logs(t.Context(), op, nil, time.Time{}, false))
		require.ErrorIs(t, err, action.ErrUnknownAction)
		require.Empty(t, lines)
		o.Forget(op)
	}
	cfg := shortLimitsConfig(selfplugin.Directory(t, "vendor", "exit"))
	h, err := pluginhost.New(t.Context(), cfg)
	require.NoError(t, err)
	_, err = openOperations(t, h).Progress(t.Context(), action.Operation{Kind: "BackupItemActionV2", Action: "nobody.io/x", ID: "x"}, nil)
	require.ErrorIs(t, err, pluginhost.ErrUnknown)
	require.NotErrorIs(t, err, action.ErrUnknownAction, "the binary that does not answer may have it")
	_, err = openOperations(t, h).Progress(t.Context(), action.Operation{Kind: "BackupItemAction", Action: "test.io/echo", ID: "x"}, nil)
	require.ErrorIs(t, err, action.ErrUnknownAction, "it is known and begins none")
}

// collectLines returns the lines and the error that ended them.
func collectLines(logs iter.Seq2[action.LogLine, error]) (lines []action.LogLine, err error) {
	for line, failed := range logs {
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		lines = append(lines, line)
	}
	return lines, err
}

func TestAnAnswerAboutAnOperationIsBounded(t *testing.T) {
	t.Parallel()
	o := openOperations(t, newVendorHost(t, nil))
	pid := answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x"))
	p, err := o.Progress(t.Context(), veleroOperation("BackupItemActionV2", "verbose"), nil)
	require.NoError(t, err)
	require.LessOrEqual(t, len(p.Description), 4<<10+3)
	require.NotContains(t, p.Description, "\x1b")
	require.NotContains(t, p.Description, "\n")
	_, err = o.Progress(t.Context(), veleroOperation("BackupItemActionV2", "monstrous"), nil)
	require.ErrorIs(t, err, pluginhost.ErrTooLarge)
	require.Equal(t, pid, answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x")))
}

// setQuietLimits has limits that no step of the clock reaches but for those on calls.
func setQuietLimits(c *pluginhost.Config, fake *clocktesting.FakeClock) {
	c.Clock, c.Limits.Start, c.Limits.Idle = fake, 10_000*time.Hour, 10_000*time.Hour
}

func TestACallThatHangsDelaysNoOtherAndEndsNoProcess(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	var out logs
	h := newVendorHost(t, func(c *pluginhost.Config) { setQuietLimits(c, fake) })
	o := h.Operations(t.Context(), out.newLogger())
	t.Cleanup(func() { _ = outlastLimits(fake, func() error { o.Close(); return nil }) })
	pid := answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x"))
	ctx, hung := t.Context(), make(chan error)
	for range 3 {
		go func() {
			_, err := o.Progress(ctx, veleroOperation("RestoreItemActionV2", "hang"), nil)
			hung <- err
		}()
	}
	require.Eventually(t, func() bool { return len(out.linesStartingWith(t, "hanging")) == 3 }, patience, tick)
	require.Equal(t, pid, answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x")), "while others hang")
	for range 3 {
		require.ErrorIs(t, outlastLimits(fake, func() error { return <-hung }), pluginhost.ErrTimeout)
	}
	require.Equal(t, pid, answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x")))
	require.False(t, isProcessGone(pid))
}

func TestCancelIsAcceptedRefusedOrHangs(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	_, o := newStarterHost(t, func(c *pluginhost.Config) { setQuietLimits(c, fake) })
	t.Cleanup(func() { _ = outlastLimits(fake, func() error { o.Close(); return nil }) })
	job := theBackup(t).JSON()
	pid := answeringProcess(t, o, externalOperation("x"))
	for id, want := range map[string]bool{"x": true, "refuse": false} {
		accepted, err := o.Cancel(t.Context(), externalOperation(id), job, time.Minute)
		require.NoError(t, err)
		require.Equal(t, want, accepted)
	}
	accepted, err := o.Cancel(t.Context(), externalOperation("x"), job, 0)
	require.NoError(t, err)
	require.False(t, accepted, "it is told the grace")
	accepted, err = o.Cancel(t.Context(), externalOperation("failing"), job, time.Minute)
	require.EqualError(t, err, "plugin a.io/outside: Cancel: cannot reach the array")
	require.False(t, accepted)
	ctx := t.Context()
	require.ErrorIs(t, outlastLimits(fake, func() error {
		_, err := o.Cancel(ctx, externalOperation("hang"), job, time.Minute)
		return err
	}), pluginhost.ErrTimeout)
	require.Equal(t, pid, answeringProcess(t, o, externalOperation("x")))
}

func TestAfterADeathAnotherProcessIsAsked(t *testing.T) {
	t.Parallel()
	h, o := newStarterHost(t, nil)
	s := openSession(t, h)
	lives := startOperation(t, s, "a.io/inside", "one")
	require.NotEmpty(t, lives.Process)
	require.True(t, o.Alive(lives.Process))
	pid := answeringProcess(t, o, inProcessOperation("one"))
	job := theBackup(t).JSON()
	_, err := o.Progress(t.Context(), externalOperation("exit"), job)
	require.ErrorIs(t, err, pluginhost.ErrCrashed, "also of the one it is asked of again")
	require.True(t, isProcessGone(pid))
	require.False(t, o.Alive(lives.Process))
	_, err = o.Progress(t.Context(), inProcessOperation("one"), job)
	require.ErrorIs(t, err, action.ErrUnknownOperation)
	_, err = collectLines(o.Logs(t.Context(), inProcessOperation("unknown"), job, time.Time{}, false))
	require.ErrorIs(t, err, action.ErrUnknownOperation)
	require.NotEqual(t, pid, answeringProcess(t, o, externalOperation("one")), "operations outside go on")
	again := startOperation(t, s, "a.io/inside", "one")
	require.NotEqual(t, lives.Process, again.Process)
	require.False(t, o.Alive(lives.Process))
	require.True(t, o.Alive(again.Process))
	require.False(t, o.Alive(""))
}

func TestAPluginThatKeepsDyingIsNotAskedForAWhile(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	h := newVendorHost(t, func(c *pluginhost.Config) {
		c.Clock, c.Limits = fake, pluginhost.Limits{Deaths: 2, Backoff: time.Hour, Idle: 10 * time.Hour}
	})
	o := openOperations(t, h)
	exit := action.Operation{Kind: "BackupItemActionV2", Action: "two.io/exit", ID: "exit"}
	_, err := o.Progress(t.Context(), exit, nil)
	require.ErrorIs(t, err, pluginhost.ErrCrashed, "twice: it only asks")
	_, err = o.Progress(t.Context(), exit, nil)
	require.ErrorIs(t, err, pluginhost.ErrStopped)
	answeringProcess(t, o, veleroOperation("BackupItemActionV2", "x"))
	require.ErrorIs(t, callers["BackupItemActionV2"](t, openSession(t, h), "exit"), pluginhost.ErrCrashed, "a job's calls are others")
	fake.Step(time.Hour)
	_, err = o.Progress(t.Context(), exit, nil)
	require.ErrorContains(t, err, "(3 times)", "one more try")
}

func TestTheLogOfAnOperationIsReadInBounds(t *testing.T) {
	t.Parallel()
	_, o := newStarterHost(t, nil)
	job := theBackup(t).JSON()
	pid := answeringProcess(t, o, externalOperation("x"))
	since := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	lines, err := collectLines(o.Logs(t.Context(), externalOperation("x"), job, since, false))
	require.NoError(t, err)
	require.Equal(t, []action.LogLine{{
		Time: time.Unix(1, 0).UTC(), Level: "warning", Message: "one two", Fields: map[string]string{"since": "2026-05-01T00:00:00Z"},
	}}, lines)
	lines, err = collectLines(o.Logs(t.Context(), externalOperation("x"), job, time.Time{}, false))
	require.NoError(t, err)
	require.Equal(t, "0001-01-01T00:00:00Z", lines[0].Fields["since"])
	lines, err = collectLines(o.Logs(t.Context(), externalOperation("none"), job, time.Time{}, false))
	require.NoError(t, err)
	require.Empty(t, lines)
	_, err = collectLines(o.Logs(t.Context(), externalOperation("long"), job, time.Time{}, false))
	require.ErrorIs(t, err, pluginhost.ErrTooLarge)
	lines, err = collectLines(o.Logs(t.Context(), externalOperation("endless"), job, time.Time{}, false))
	require.ErrorIs(t, err, pluginhost.ErrTooLarge)
	require.Len(t, lines, 64, "of a megabyte")
	require.LessOrEqual(t, len(lines[0].Message), 4<<10+3)
	require.Equal(t, pid, answeringProcess(t, o, externalOperation("x")))
}

func TestALogThatIsFollowedEndsWithItsReader(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	_, o := newStarterHost(t, func(c *pluginhost.Config) { setQuietLimits(c, fake) })
	t.Cleanup(func() { _ = outlastLimits(fake, func() error { o.Close(); return nil }) })
	job := theBackup(t).JSON()
	pid := answeringProcess(t, o, externalOperation("x"))
	why := errors.New("the reader went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	lines := 0
	for _, err := range o.Logs(ctx, externalOperation("x"), job, time.Time{}, true) {
		if lines++; lines == 2 {
			require.ErrorIs(t, err, why)
			break
		}
		require.NoError(t, err)
		fake.Step(time.Hour) // nothing is logged for long
		cancel(why)
	}
	require.Equal(t, 2, lines)
	for range o.Logs(t.Context(), externalOperation("x"), job, time.Time{}, true) {
		break // it has seen enough
	}
	ctx = t.Context()
	require.ErrorIs(t, outlastLimits(fake, func() error {
		_, err := collectLines(o.Logs(ctx, externalOperation("hang"), job, time.Time{}, false))
		return err
	}), pluginhost.ErrTimeout)
	require.Equal(t, pid, answeringProcess(t, o, externalOperation("x")))
}

func TestAnOperationKeepsItsProcessUntilItEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *pluginhost.Operations){
		"cancelled": func(t *testing.T, o *pluginhost.Operations) {
			t.Helper()
			job := theBackup(t).JSON()
			accepted, err := o.Cancel(t.Context(), inProcessOperation("one"), job, 0)
			require.NoError(t, err)
			require.True(t, accepted)
			p, err := o.Progress(t.Context(), inProcessOperation("one"), job)
			require.NoError(t, err)
			require.True(t, p.Done)
			require.Contains(t, p.Err, "cancelled")
		},
		"given up": func(_ *testing.T, o *pluginhost.Operations) { o.Forget(inProcessOperation("one")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := clocktesting.NewFakeClock(time.Unix(0, 0))
			h, o := newStarterHost(t, func(c *pluginhost.Config) { c.Clock, c.Limits.Start = fake, 10_000*time.Hour })
			t.Cleanup(func() { _ = outlastLimits(fake, func() error { o.Close(); return nil }) })
			s := openSession(t, h)
			first := startOperation(t, s, "a.io/inside", "one")
			startOperation(t, s, "a.io/inside", "one") // the same operation
			s.Close()
			pid := answeringProcess(t, o, inProcessOperation("one"))
			for range 3 {
				fake.Step(10 * time.Minute)
				require.Eventually(t, fake.HasWaiters, patience, tick)
			}
			require.Equal(t, pid, answeringProcess(t, o, inProcessOperation("one")))
			require.Equal(t, pid, answeringProcess(t, o, externalOperation("x")), "it is in use")
			require.True(t, o.Alive(first.Process))
			end(t, o)
			require.Eventually(t, func() bool { fake.Step(time.Minute); return isProcessGone(pid) }, patience, tick)
			require.False(t, o.Alive(first.Process))
			require.NotEqual(t, pid, answeringProcess(t, o, externalOperation("x")), "it starts when it is needed")
		})
	}
}

func TestAProcessThatAnswersNothingIsReplacedAndKeptForItsOperations(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	h, o := newStarterHost(t, func(c *pluginhost.Config) { setQuietLimits(c, fake); c.Limits.Deaths = 2 })
	t.Cleanup(func() { _ = outlastLimits(fake, func() error { o.Close(); return nil }) })
	s := openSession(t, h)
	old := startOperation(t, s, "a.io/inside", "one")
	pid := answeringProcess(t, o, inProcessOperation("one"))
	ctx, job := t.Context(), theBackup(t).JSON()
	hang := func() {
		require.ErrorIs(t, outlastLimits(fake, func() error { _, err := o.Progress(ctx, externalOperation("hang"), job); return err }), pluginhost.ErrTimeout)
	}
	hang()
	require.Equal(t, pid, answeringProcess(t, o, externalOperation("x")), "an answer in between")
	hang()
	require.Equal(t, pid, answeringProcess(t, o, externalOperation("x")))
	hang()
	hang()
	require.NotEqual(t, pid, answeringProcess(t, o, externalOperation("x")))
	require.Equal(t, pid, answeringProcess(t, o, inProcessOperation("one")))
	require.True(t, o.Alive(old.Process))
	young := startOperation(t, s, "a.io/inside", "two")
	require.NotEqual(t, old.Process, young.Process)
	o.Forget(inProcessOperation("one"))
	require.Eventually(t, func() bool { fake.Step(time.Second); return isProcessGone(pid) }, patience, tick)
	require.True(t, o.Alive(young.Process))
}

func TestNothingIsAskedOnceOperationsAreClosed(t *testing.T) {
	t.Parallel()
	h, o := newStarterHost(t, nil)
	require.Same(t, o, h.Operations(t.Context(), nil))
	s := openSession(t, h)
	r := startOperation(t, s, "a.io/inside", "one")
	pid := answeringProcess(t, o, inProcessOperation("one"))
	o.Close()
	require.True(t, isProcessGone(pid))
	require.False(t, o.Alive(r.Process))
	_, err := o.Progress(t.Context(), inProcessOperation("one"), nil)
	require.ErrorIs(t, err, pluginhost.ErrClosed)
	_, err = actionNamed(t, s.BackupItems(), "a.io/outside").(action.BackupStarter).Start(t.Context(), newPodObject(), theBackup(t), "k")
	require.ErrorIs(t, err, pluginhost.ErrClosed)
}
