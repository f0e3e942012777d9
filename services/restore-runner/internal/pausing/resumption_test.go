package pausing_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

func newTarget(name string) apply.Target {
	return apply.Target{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Namespace: "a", Name: name}
}

func newRecorder() *outcome.Recorder {
	return outcome.NewRecorder(outcome.NewLog(io.Discard, "velero/r"), clock.RealClock{}, 1000, "")
}

var prefix = layout.RestoreRecords("r", "uid-r") + outcome.FilePrefix

// storeRecords stores one file of records for each of the functions, by as many holders.
func storeRecords(t *testing.T, write ...func(*outcome.Recorder)) *memstore.Store {
	t.Helper()
	store := memstore.New()
	for i, do := range write {
		opened, err := journal.Open(t.Context(), store, prefix, int64(i+1)) // closes those before
		require.NoError(t, err)
		r := newRecorder()
		do(r)
		r.Open()
		require.NoError(t, r.Flush(t.Context(), outcome.Journal{Journal: opened}))
		require.NoError(t, r.Close())
	}
	return store
}

func recordPauses(names ...string) func(*outcome.Recorder) {
	return func(r *outcome.Recorder) {
		for _, name := range names {
			r.Pause(&outcome.Paused{Target: newTarget(name), Back: map[string]any{"spec": map[string]any{"paused": nil}}})
		}
	}
}

func recordResume(name string) func(*outcome.Recorder) {
	return func(r *outcome.Recorder) {
		e := r.Begin(outcome.General)
		e.Resumed(newTarget(name))
		e.Commit()
	}
}

var theRestore = &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "r", UID: "uid-r"}}

// What one holder paused another may have resumed.
func TestLoadUnfinishedReadsTheRecordsOfAllHolders(t *testing.T) {
	store := storeRecords(t, recordPauses("x", "y"), recordResume("x"), recordPauses("b"))
	r := newRecorder()
	require.NoError(t, pausing.LoadUnfinished(t.Context(), store, theRestore, r))
	require.Equal(t, []string{"widgets.example.com a/b", "widgets.example.com a/y"}, pausing.Names(r))
}

func TestLoadUnfinishedReadsWhatItCan(t *testing.T) {
	store := storeRecords(t, recordPauses("x"), recordPauses("y"), recordPauses("z"))
	store.Set(journal.Key(prefix, 2, 1), []byte("no gzip"))
	away := errors.New("no route")
	store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpGet && key == journal.Key(prefix, 1, 1) {
			return away
		}
		return nil
	})
	r := newRecorder()
	err := pausing.LoadUnfinished(t.Context(), store, theRestore, r)
	require.ErrorIs(t, err, outcome.ErrFormat)
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "read record-0000000002-0000000001: ")
	require.Equal(t, []string{"widgets.example.com a/z"}, pausing.Names(r))
}

// Without records it is not known that nothing is paused.
func TestLoadUnfinishedWithoutRecordsIsAnError(t *testing.T) {
	require.ErrorIs(t, pausing.LoadUnfinished(t.Context(), memstore.New(), theRestore, newRecorder()), pausing.ErrNoRecords)
}
