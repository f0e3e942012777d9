package pluginhost_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

func TestBackupActionsOfTheSDKStartOperations(t *testing.T) {
	t.Parallel()
	h, _ := newStarterHost(t, nil)
	s := openSession(t, h)
	for name, lives := range map[string]bool{"a.io/inside": true, "a.io/outside": false} {
		a := actionNamed(t, s.BackupItems(), name)
		selector, err := a.AppliesTo(t.Context())
		require.NoError(t, err)
		require.Equal(t, action.Selector{IncludedResources: []string{"pods"}, Touches: []string{"pods"}}, selector)
		require.Equal(t, "AsyncBackupItemAction", a.(action.BackupOperations).OperationKind())
		require.NoError(t, a.(action.Preparer).Prepare(t.Context()))
		r := startOperation(t, s, name, "key")
		require.Equal(t, lives, r.Process != "")
		require.Equal(t, "b1", objectAnnotations(t, r.Object)["backup"])
		require.Len(t, r.Additional, 1)
		require.Len(t, r.PostOperation, 2)

		begin := func(key string) (*action.Object, action.BackupResult, error) {
			sent := newPodObject()
			r, err := a.(action.BackupStarter).Start(t.Context(), sent, theBackup(t), key)
			return sent, r, err
		}
		sent, r, err := begin("nothing")
		require.NoError(t, err)
		require.Equal(t, action.BackupResult{Object: sent}, r)
		_, _, err = begin("error")
		require.EqualError(t, err, "plugin "+name+": StartBackup of Pod a/b: no licence")
		_, r, err = begin("other")
		require.ErrorIs(t, err, pluginhost.ErrMalformed)
		require.Equal(t, "other", r.OperationID, "it goes on, whatever object came with it")
		require.Equal(t, lives, r.Process != "")
		_, r, err = begin("long")
		require.ErrorIs(t, err, pluginhost.ErrMalformed)
		require.ErrorContains(t, err, "plugin "+name+": StartBackup of Pod a/b: malformed answer: operation ID is longer than 1024 bytes")
		require.Empty(t, r.OperationID)
		_, _, err = begin("exit")
		require.ErrorIs(t, err, pluginhost.ErrCrashed)
		var failed *pluginhost.Error
		require.ErrorAs(t, err, &failed)
		require.True(t, failed.Sent)
	}
}

func TestNothingIsBegunWithoutAKey(t *testing.T) {
	t.Parallel()
	h, _ := newStarterHost(t, nil)
	s := openSession(t, h)
	backs, restores := actionNamed(t, s.BackupItems(), "a.io/inside"), actionNamed(t, s.RestoreItems(), "a.io/restores")
	for _, call := range []func() error{
		func() error { _, err := backs.Execute(t.Context(), newPodObject(), theBackup(t)); return err },
		func() error {
			_, err := backs.(action.BackupStarter).Start(t.Context(), newPodObject(), theBackup(t), "")
			return err
		},
		func() error {
			_, err := restores.Execute(t.Context(), newPodObject(), newPodObject(), theRestore(t))
			return err
		},
		func() error {
			_, err := restores.(action.RestoreStarter).Start(t.Context(), newPodObject(), newPodObject(), theRestore(t), "")
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, pluginhost.ErrNoKey)
		var failed *pluginhost.Error
		require.ErrorAs(t, err, &failed)
		require.False(t, failed.Sent)
		require.Equal(t, "Pod a/b", failed.Object)
	}
}

func TestRestoreActionsOfTheSDKStartOperations(t *testing.T) {
	t.Parallel()
	h, o := newStarterHost(t, nil)
	s := openSession(t, h)
	a := actionNamed(t, s.RestoreItems(), "a.io/restores")
	require.Equal(t, "AsyncRestoreItemAction", a.(action.RestoreOperations).OperationKind())
	require.NotImplements(t, (*action.Readiness)(nil), a)
	require.NoError(t, a.(action.Preparer).Prepare(t.Context()))
	for _, key := range []string{"key", "skip"} {
		r, err := a.(action.RestoreStarter).Start(t.Context(), newPodObject(), newPodObject(), theRestore(t), key)
		require.NoError(t, err)
		require.Equal(t, key == "skip", r.Skip)
		require.Equal(t, key, r.OperationID)
		require.True(t, o.Alive(r.Process))
		require.Len(t, r.Additional, 1)
		require.Equal(t, map[string]string{"restore": "r1", "stored": "b"}, objectAnnotations(t, r.Object))
		p, err := o.Progress(t.Context(), action.Operation{Kind: "AsyncRestoreItemAction", Action: "a.io/restores", ID: key}, theRestore(t).JSON())
		require.NoError(t, err)
		require.False(t, p.Done)
		require.Equal(t, "r1", p.Units, "it gets the restore")
	}
}

// An operation whose ID no record takes went on: nothing could name it any more.
func TestAnOperationThatIsNotFollowedIsCancelled(t *testing.T) {
	t.Parallel()
	h, o := newStarterHost(t, nil)
	s := openSession(t, h)
	long := strings.Repeat("x", 5<<10)
	progress := func() action.Progress {
		p, err := o.Progress(t.Context(), inProcessOperation(long), theBackup(t).JSON())
		require.NoError(t, err)
		return p
	}
	begin := func(name, key string) error {
		_, err := actionNamed(t, s.BackupItems(), name).(action.BackupStarter).Start(t.Context(), newPodObject(), theBackup(t), key)
		return err
	}
	require.ErrorContains(t, begin("a.io/inside", "long"), "the operation that it names is cancelled")
	p := progress()
	require.True(t, p.Done)
	require.Equal(t, int64(1), p.Completed, "once")
	require.Zero(t, o.Running(), "it keeps no process")
	require.ErrorContains(t, begin("a.io/outside", "long"), "is not followed, and could not be cancelled: the operation does not stop")

	vendor := openSession(t, newVendorHost(t, nil))
	_, err := actionNamed(t, vendor.RestoreItems(), "two.io/long").Execute(t.Context(), newPodObject(), newPodObject(), theRestore(t))
	require.ErrorContains(t, err, "plugin two.io/long: Execute of Pod a/b: malformed answer: operation ID is longer than 1024 bytes: the operation that it names is cancelled")
	r, err := actionNamed(t, vendor.BackupItems(), "two.io/long").Execute(t.Context(), newPodObject(), theBackup(t))
	require.ErrorContains(t, err, "is not followed, and could not be cancelled:")
	require.ErrorContains(t, err, "cancelled too late")
	require.Empty(t, r.OperationID)
}

// What a call answered can be refused after it, and the operation is cancelled by the action then.
func TestAnOperationIsCancelledByItsAction(t *testing.T) {
	t.Parallel()
	h, o := newStarterHost(t, nil)
	s := openSession(t, h)
	startOperation(t, s, "a.io/inside", "key")
	cancel := func(name, id string) error {
		return actionNamed(t, s.BackupItems(), name).(action.Canceller).CancelBegun(t.Context(), id, theBackup(t).JSON())
	}
	require.NoError(t, cancel("a.io/inside", "key"))
	p, err := o.Progress(t.Context(), inProcessOperation("key"), theBackup(t).JSON())
	require.NoError(t, err)
	require.True(t, p.Done)
	require.ErrorIs(t, cancel("a.io/outside", "refuse"), action.ErrNotCancelled)
	require.ErrorContains(t, cancel("a.io/outside", "failing"), "plugin a.io/outside: Cancel: cannot reach the array")
	restores := actionNamed(t, s.RestoreItems(), "a.io/restores").(action.Canceller)
	require.NoError(t, restores.CancelBegun(t.Context(), "any", theRestore(t).JSON()))

	vendor := openSession(t, newVendorHost(t, nil))
	require.NoError(t, actionNamed(t, vendor.RestoreItems(), "two.io/start").(action.Canceller).CancelBegun(t.Context(), "x", theRestore(t).JSON()))
	err = actionNamed(t, vendor.BackupItems(), "two.io/start").(action.Canceller).CancelBegun(t.Context(), "x", theBackup(t).JSON())
	require.EqualError(t, err, "plugin two.io/start: Cancel: cancelled too late")
}
