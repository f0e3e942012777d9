package commit_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/commit"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func newBackup(uid types.UID) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "b", UID: uid}}
	b.Status.Phase, b.Status.QueuePosition = velerov1.BackupPhaseInProgress, 3
	return b
}

func TestTheFirstCommitStands(t *testing.T) {
	store := memstore.New()
	b := newBackup("one")
	require.NoError(t, mark.SetCommitting(b, 1))
	_, found, err := commit.Committed(t.Context(), store, b)
	require.NoError(t, err)
	require.False(t, found)

	first, created, err := commit.Commit(t.Context(), store, commit.Failed(b, "cancelled by alice", now))
	require.NoError(t, err)
	require.True(t, created)
	require.False(t, mark.IsCommitting(first), "the mark is not content")
	require.True(t, mark.IsCommitting(b), "the argument is not touched")

	second, created, err := commit.Commit(t.Context(), store, commit.Final(b, velerov1.BackupPhaseCompleted, now.Add(time.Hour)))
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, velerov1.BackupPhaseFailed, second.Status.Phase)
	require.Equal(t, "cancelled by alice", second.Status.FailureReason)
	require.Equal(t, 1, second.Status.Errors)
	require.Zero(t, second.Status.QueuePosition)
	require.True(t, second.Status.CompletionTimestamp.Time.Equal(now.Truncate(time.Second)))
}

func TestAnotherBackupsFileIsForeign(t *testing.T) {
	for name, content := range map[string]string{"another UID": `{"metadata":{"uid":"two"}}`, "no JSON": "x", "too large": strings.Repeat("x", 17<<20)} {
		store := memstore.New()
		require.NoError(t, objectstore.CreateBytes(t.Context(), store, layout.BackupMetadata("b"), []byte(content)))
		_, _, err := commit.Commit(t.Context(), store, commit.Failed(newBackup("one"), "why", now))
		require.ErrorIs(t, err, commit.ErrForeign, name)
	}
}

// Catches files of a failed backup that are there and say nothing: log and results carry the
// reason.
func TestExplainLeavesLogAndResults(t *testing.T) {
	store := memstore.New()
	v := commit.Failure{Reason: "cancelled by alice", Time: now, Source: "holdfast/test"}
	require.NoError(t, commit.Explain(t.Context(), store, t.TempDir(), newBackup("one"), "cluster", v))
	for _, key := range []string{layout.BackupLog("b"), layout.BackupResults("b")} {
		data, err := objectstore.ReadAll(t.Context(), store, key, 1<<20)
		require.NoError(t, err)
		zip, err := gzip.NewReader(bytes.NewReader(data))
		require.NoError(t, err)
		text, err := io.ReadAll(zip)
		require.NoError(t, err)
		require.Contains(t, string(text), "Backup failed", key)
		require.Contains(t, string(text), "cancelled by alice", key)
	}
}
