package pluginhost

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

// hasty has the first pauses between retries over at once.
type hasty struct{ clock.RealClock }

func (hasty) NewTimer(d time.Duration) clock.Timer {
	if d == firstRetry || d == 2*firstRetry {
		d = time.Millisecond
	}
	return clock.RealClock{}.NewTimer(d)
}

// A binary that failed to start together with the service was not used until a restart of the
// service.
func TestABinaryThatDidNotStartIsAskedAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vendor")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 3\n"), 0o700)) //nolint:gosec // it is executed
	h, err := New(t.Context(), Config{Dir: dir, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler), Clock: hasty{}})
	require.NoError(t, err)
	before := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	defer before.Close()
	require.Len(t, h.UnlistedBinaries(), 1)
	require.True(t, h.MayServe(KindDeleteItemAction), "nobody knows")
	require.Len(t, before.MissingFromBackups(), 1)
	require.Len(t, before.MissingFromRestores(), 1)
	require.Empty(t, before.BackupItems())

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	require.NoError(t, os.Remove(path))
	selfplugin.Link(t, dir, "vendor")
	require.Eventually(t, func() bool { return len(h.UnlistedBinaries()) == 0 }, time.Minute, time.Millisecond)
	after := h.Open(t.Context(), slog.New(slog.DiscardHandler))
	defer after.Close()
	require.Empty(t, after.MissingFromBackups())
	require.NotEmpty(t, after.BackupItems())
	require.Empty(t, before.BackupItems(), "a job has the same plugins from its beginning to its end")
	stop()
	require.NoError(t, <-done)
}

// A plugin of a kind that no service calls was registered, without a message that its work is not
// done.
func TestWhatNobodyServesIsMissingFromTheJobsItIsFor(t *testing.T) {
	registered := func(kind Kind, name string) Registration {
		return Registration{Kind: kind, Name: name, Path: "/p/x", described: isAsynchronous(kind)}
	}
	for name, tc := range map[string]struct {
		plugins           []Registration
		backups, restores int
		deletable         bool
	}{
		"asynchronous backup":         {plugins: []Registration{registered(KindAsyncBackupItemAction, "a.io/x")}, backups: 1},
		"asynchronous restore":        {plugins: []Registration{registered(KindAsyncRestoreItemAction, "a.io/x")}, restores: 1},
		"served under another kind":   {plugins: []Registration{registered(KindAsyncBackupItemAction, "a.io/x"), registered(KindBackupItemActionV2, "a.io/x")}},
		"another of that name":        {plugins: []Registration{registered(KindAsyncBackupItemAction, "a.io/x"), registered(KindBackupItemAction, "a.io/x")}, backups: 1},
		"a kind of another server":    {plugins: []Registration{registered("PreflightAction", "a.io/x")}, backups: 1, restores: 1},
		"no name":                     {plugins: []Registration{registered(KindRestoreItemAction, "x")}, restores: 1},
		"a delete item action's name": {plugins: []Registration{registered(KindDeleteItemAction, "x")}},
		"an object store twice":       {plugins: []Registration{registered(KindObjectStore, "a.io/x"), registered(KindObjectStore, "a.io/x")}},
		"fine":                        {plugins: []Registration{registered(KindDeleteItemAction, "a.io/x")}, deletable: true},
	} {
		h := &Host{listings: []binaryListing{{path: "/p/x", plugins: tc.plugins}}, backoffs: newBackoffs()}
		h.arrangeCatalog()
		s := h.Open(t.Context(), slog.New(slog.DiscardHandler))
		require.Len(t, s.MissingFromBackups(), tc.backups, name)
		require.Len(t, s.MissingFromRestores(), tc.restores, name)
		require.Empty(t, h.UnlistedBinaries(), name)
		require.Equal(t, tc.deletable, h.MayServe(KindDeleteItemAction), name)
		s.Close()
	}
}
