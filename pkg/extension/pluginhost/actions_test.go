package pluginhost_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/action/actiontest"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

func formatInt(i int) string { return strconv.Itoa(i) }

var wantSelector = action.Selector{IncludedResources: []string{"pods"}, ExcludedNamespaces: []string{"kube-system"}, Labels: "a=b"}

func TestActionsOfEveryKindAndVersionAreCalled(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	ctx, backup, restore := t.Context(), theBackup(t), theRestore(t)
	for _, vendor := range []string{"test.io", "two.io"} { // both versions
		b := actionNamed(t, s.BackupItems(), vendor+"/change")
		selector, err := b.AppliesTo(ctx)
		require.NoError(t, err)
		require.Equal(t, wantSelector, selector)
		result, err := b.Execute(ctx, newPodObject(), backup)
		require.NoError(t, err)
		require.Equal(t, "yes", objectAnnotations(t, result.Object)["changed"])

		a := actionNamed(t, s.RestoreItems(), vendor+"/change")
		selector, err = a.AppliesTo(ctx)
		require.NoError(t, err)
		require.Equal(t, wantSelector, selector)
		restored, err := a.Execute(ctx, newPodObject(), newPodObject(), restore)
		require.NoError(t, err)
		require.Equal(t, "yes", objectAnnotations(t, restored.Object)["changed"])

		unchanged := newPodObject()
		result, err = actionNamed(t, s.BackupItems(), vendor+"/more").Execute(ctx, unchanged, backup)
		require.NoError(t, err)
		require.Same(t, unchanged, result.Object, "an echo is the very object")
		require.Equal(t, "secrets a/s", result.Additional[0].String())
		require.Equal(t, "deployments.apps a/d", result.Additional[1].String())
	}
	d := actionNamed(t, s.DeleteItems(), "test.io/echo")
	selector, err := d.AppliesTo(ctx)
	require.NoError(t, err)
	require.Equal(t, wantSelector, selector)
	require.NoError(t, d.Execute(ctx, newPodObject(), backup))

	block := actionNamed(t, s.ItemBlocks(), "test.io/more")
	selector, err = block.AppliesTo(ctx)
	require.NoError(t, err)
	require.Equal(t, wantSelector, selector)
	related, err := block.Related(ctx, newPodObject(), backup)
	require.NoError(t, err)
	require.Len(t, related, 2)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := openSession(t, newVendorHost(t, nil))
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"s"}}`
	for _, behaviour := range []string{"echo", "change", "more"} {
		for _, vendor := range []string{"test.io/", "two.io/"} {
			actiontest.RunBackupItem(t, actionNamed(t, s.BackupItems(), vendor+behaviour), secret)
			actiontest.RunRestoreItem(t, actionNamed(t, s.RestoreItems(), vendor+behaviour), secret)
		}
		actiontest.RunItemBlock(t, actionNamed(t, s.ItemBlocks(), "test.io/"+behaviour), secret)
		actiontest.RunDeleteItem(t, actionNamed(t, s.DeleteItems(), "test.io/"+behaviour), secret)
	}
}

func TestRestoreActionsWaitSkipAndStartOperations(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	ctx, restore := t.Context(), theRestore(t)
	execute := func(name string) (action.RestoreResult, error) {
		return actionNamed(t, s.RestoreItems(), name).Execute(ctx, newPodObject(), newPodObject(), restore)
	}
	r, err := execute("two.io/wait")
	require.NoError(t, err)
	require.True(t, r.Wait)
	require.Equal(t, 90*time.Second, r.WaitTimeout)
	ready, err := actionNamed(t, s.RestoreItems(), "two.io/wait").(action.Readiness).Ready(ctx, r.Additional, restore)
	require.NoError(t, err)
	require.True(t, ready)
	ready, err = actionNamed(t, s.RestoreItems(), "two.io/wait").(action.Readiness).Ready(ctx, r.Additional[:1], restore)
	require.NoError(t, err)
	require.False(t, ready)

	for _, name := range []string{"test.io/skip", "two.io/skip"} { // the first returns no item, the second does
		r, err = execute(name)
		require.NoError(t, err)
		require.True(t, r.Skip)
	}
	r, err = execute("two.io/start")
	require.NoError(t, err)
	require.Equal(t, "op-2", r.OperationID)
	require.Equal(t, "RestoreItemActionV2", actionNamed(t, s.RestoreItems(), "two.io/start").(action.RestoreOperations).OperationKind())

	_, err = execute("two.io/negative")
	require.ErrorIs(t, err, pluginhost.ErrMalformed)
	require.ErrorContains(t, err, "additionalItemsReadyTimeout")
	require.NotImplements(t, (*action.Readiness)(nil), actionNamed(t, s.RestoreItems(), "test.io/echo"), "version 1 is never asked")
}

func TestBackupActionsStartOperations(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	ctx, backup := t.Context(), theBackup(t)
	r, err := actionNamed(t, s.BackupItems(), "two.io/start").Execute(ctx, newPodObject(), backup)
	require.NoError(t, err)
	require.Equal(t, "op-1", r.OperationID)
	require.Len(t, r.PostOperation, 2)
	require.Equal(t, "BackupItemActionV2", actionNamed(t, s.BackupItems(), "two.io/start").(action.BackupOperations).OperationKind())
	r, err = actionNamed(t, s.BackupItems(), "two.io/other").Execute(ctx, newPodObject(), backup)
	require.Error(t, err)
	require.Equal(t, "op-1", r.OperationID, "it continues although the object is invalid")
}

func TestRestoreActionsMayRenameAndConvert(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	secret := action.FromJSON([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":"a","name":"old"}}`))
	r, err := actionNamed(t, s.RestoreItems(), "test.io/other").Execute(t.Context(), secret, secret, theRestore(t))
	require.NoError(t, err)
	id, err := r.Object.Identity()
	require.NoError(t, err)
	require.Equal(t, "b", id.Name)
	r, err = actionNamed(t, s.RestoreItems(), "test.io/other").Execute(t.Context(), newPodObject(), newPodObject(), theRestore(t))
	require.NoError(t, err)
	id, err = r.Object.Identity()
	require.NoError(t, err)
	require.Equal(t, "Secret", id.Kind.Kind)
	_, err = actionNamed(t, s.BackupItems(), "test.io/other").Execute(t.Context(), secret, theBackup(t))
	require.ErrorIs(t, err, pluginhost.ErrMalformed)
}

func TestErrorsNamePluginMethodAndObject(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	_, err := actionNamed(t, s.BackupItems(), "test.io/error").Execute(t.Context(), newPodObject(), theBackup(t))
	require.EqualError(t, err, "plugin test.io/error: Execute of Pod a/b: no such volume")
	_, err = actionNamed(t, s.ItemBlocks(), "test.io/error").Related(t.Context(), newPodObject(), theBackup(t))
	require.EqualError(t, err, "plugin test.io/error: GetRelatedItems of Pod a/b: no such volume")

	_, err = actionNamed(t, s.BackupItems(), "two.io/stack").Execute(t.Context(), newPodObject(), theBackup(t))
	var remote *pluginhost.RemoteError
	require.ErrorAs(t, err, &remote)
	require.Equal(t, pluginhost.RemoteError{Code: codes.Unknown, Message: "deep", Function: "pkg.Snap", File: "snap.go", Line: 7}, *remote)

	_, err = actionNamed(t, s.BackupItems(), "test.io/unavailable").Execute(t.Context(), newPodObject(), theBackup(t))
	require.ErrorContains(t, err, "the storage array is rebooting")
	require.NotErrorIs(t, err, pluginhost.ErrCrashed, "a living plugin may answer Unavailable")
}

func TestPluginsGetVelerosFlagsAndNoSecretsOfOurs(t *testing.T) {
	h := newVendorHost(t, func(c *pluginhost.Config) {
		c.Features, c.Kubeconfig = []string{"EnableCSI", "Other"}, "/some/kubeconfig"
	})
	r, err := actionNamed(t, openSession(t, h).BackupItems(), "test.io/env").Execute(t.Context(), newPodObject(), theBackup(t))
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"args": "--log-level=warning --features=EnableCSI,Other", "namespace": "velero", "kubeconfig": "/some/kubeconfig", "secret": "", "home": "kept",
	}, objectAnnotations(t, r.Object))
}

func TestVolumeSnapshotter(t *testing.T) {
	s := openSession(t, newVendorHost(t, nil))
	ctx := t.Context()
	v, err := s.VolumeSnapshotter("test.io/change", map[string]string{"zone": "z"})
	require.NoError(t, err)
	id, err := v.CreateVolume(ctx, "snap", "az", action.Volume{Type: "fast", IOPS: 9})
	require.NoError(t, err)
	require.Equal(t, "zsnapfastaz9", id)
	about, err := v.Volume(ctx, "vol", "az")
	require.NoError(t, err)
	require.Equal(t, action.Volume{Type: "fast", IOPS: 7}, about)
	snapshot, err := v.CreateSnapshot(ctx, "vol", "az", map[string]string{"k": "v"})
	require.NoError(t, err)
	require.Equal(t, "snap-volazv", snapshot)
	require.EqualError(t, v.DeleteSnapshot(ctx, "snap"), "plugin test.io/change: DeleteSnapshot: snapshot snap is in use")
	id, err = v.VolumeID(ctx, newVolumeObject())
	require.NoError(t, err)
	require.Contains(t, id, "PersistentVolume")
	changed, err := v.SetVolumeID(ctx, newVolumeObject(), "new")
	require.NoError(t, err)
	require.Equal(t, "yes", objectAnnotations(t, changed)["changed"])

	_, err = s.VolumeSnapshotter("nobody.io/x", nil)
	require.ErrorIs(t, err, pluginhost.ErrUnknown)
	_, err = s.ObjectStore("aws", nil)
	require.EqualError(t, err, "no such plugin: ObjectStore velero.io/aws")
	bad, err := s.VolumeSnapshotter("test.io/echo", map[string]string{"bad": "yes"})
	require.NoError(t, err)
	_, err = bad.Volume(ctx, "vol", "az")
	require.EqualError(t, err, "plugin test.io/echo: GetVolumeInfo: Init: unknown key bad")
	require.EqualError(t, bad.(action.Preparer).Prepare(t.Context()), "plugin test.io/echo: Prepare: Init: unknown key bad")
	require.NoError(t, v.(action.Preparer).Prepare(t.Context()))
	require.ErrorAs(t, err, new(*pluginhost.RemoteError))
}

// What Prepare brought up answers the next call.
func TestPrepareStartsTheProcess(t *testing.T) {
	t.Parallel()
	s := openSession(t, newVendorHost(t, nil))
	a := actionNamed(t, s.BackupItems(), "two.io/pid")
	require.NoError(t, a.(action.Preparer).Prepare(t.Context()))
	require.NoError(t, a.(action.Preparer).Prepare(t.Context()))
	first, err := a.Execute(t.Context(), newPodObject(), theBackup(t))
	require.NoError(t, err)
	second, err := a.Execute(t.Context(), newPodObject(), theBackup(t))
	require.NoError(t, err)
	require.Equal(t, objectAnnotations(t, first.Object)["pid"], objectAnnotations(t, second.Object)["pid"])

	s.Close()
	err = a.(action.Preparer).Prepare(t.Context())
	var failed *pluginhost.Error
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, err, pluginhost.ErrClosed)
	require.False(t, failed.Sent)
}
