package job_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
)

// defective is a bucket whose client has defects.
type defective struct {
	objectstore.Store
	reads, writes bool
}

func (s defective) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if s.reads {
		panic("a defect in reading")
	}
	return s.Store.Get(ctx, key)
}

func (s defective) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	if s.writes && strings.Contains(key, "/record-") {
		panic("a defect in writing")
	}
	return s.Store.Create(ctx, key, r, size)
}

// panickingRuns are three runs of a restore that panic while its location is opened.
func (b *bench) panickingRuns(t *testing.T, defect func()) {
	t.Helper()
	b.locations.err, b.locations.failed = noSuchHost(), defect
	for range 3 {
		require.ErrorIs(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), engine.ErrInternal)
	}
	b.locations.err, b.locations.failed = nil, nil
}

func (b *bench) requireGivenUp(t *testing.T) {
	t.Helper()
	r := b.getRestore(t)
	require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
	require.Equal(t, "internal error", r.Status.FailureReason)
	require.NotNil(t, r.Status.CompletionTimestamp)
	require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailed}, b.ended)
}

func TestPanicsEndTheRestore(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*bench)
		where   string
	}{
		"while restoring": {func(b *bench) { b.locations.store = defective{Store: b.store, reads: true} }, "a defect in reading"},
		"beside it":       {func(b *bench) { b.locations.store = defective{Store: b.store, writes: true} }, "a defect in writing"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 3)
			b.createRestore(t, true)
			var log bytes.Buffer
			b.config.Log = slog.New(slog.NewTextHandler(&log, nil))
			tt.prepare(b)
			for range 3 {
				require.ErrorIs(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), engine.ErrInternal)
				require.Equal(t, velerov1.RestorePhaseInProgress, b.getRestore(t).Status.Phase)
			}
			b.locations.store = b.store
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			b.requireGivenUp(t)
			require.Contains(t, log.String(), tt.where)
			require.Contains(t, log.String(), "panic_test.go", "the stack")
		})
	}
}

// rarely is a bucket whose client panics with each fourth record.
type rarely struct {
	objectstore.Store
	records *atomic.Int32
}

func (s rarely) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	if strings.Contains(key, "/record-") && s.records.Add(1)%4 == 0 {
		panic("a defect in writing")
	}
	return s.Store.Create(ctx, key, r, size)
}

func TestPanicsWithProgressBetweenThemDoNotEndTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 40)
	b.createRestore(t, true)
	b.config.RecordBatch = 1
	b.locations.store = rarely{b.store, new(atomic.Int32)}
	panicked := 0
	for b.getRestore(t).Status.CompletionTimestamp == nil {
		if err := newRunner(b.config).Run(t.Context(), "r", "uid-r"); err != nil {
			require.ErrorIs(t, err, engine.ErrInternal)
			panicked++
		}
	}
	require.Equal(t, velerov1.RestorePhaseCompleted, b.getRestore(t).Status.Phase)
	require.Positive(t, panicked)
}

// lastly is an action that panics with the last of many objects.
type lastly struct{ stuck }

func (*lastly) Execute(_ context.Context, o, _ *action.Object, _ *action.Restore) (action.RestoreResult, error) {
	text, err := o.JSON()
	if strings.Contains(string(text), "c039") {
		panic("a defect of an action")
	}
	return action.RestoreResult{Object: o}, err
}

// Where nothing can be recorded each attempt restores from the beginning: that is no progress.
func TestPanicsAtAReadOnlyLocationEndTheRestore(t *testing.T) {
	b := newBench(t)
	b.storeTarball(t, 40)
	b.createRestore(t, true)
	b.config.RecordBatch = 1
	b.locations.store = objectstore.ReadOnly(b.store)
	b.config.Actions = func(context.Context, func(joblog.Entry)) job.ActionSet {
		return job.ActionSet{Items: []action.RestoreItem{&lastly{}}}
	}
	for range 3 {
		require.ErrorIs(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), engine.ErrInternal)
		require.NotEmpty(t, b.cluster.Requests("POST /api/v1/namespaces/a/configmaps"), "objects were restored before")
	}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	require.Equal(t, velerov1.RestorePhaseFailed, b.getRestore(t).Status.Phase)
	require.Equal(t, "internal error", b.getRestore(t).Status.FailureReason)
}

// defectiveLedger panics when it is asked whether a restore was admitted.
type defectiveLedger struct{ job.Ledger }

func (defectiveLedger) Get(context.Context, types.UID) (ledger.Entry, bool, error) {
	panic("a defect in admitting")
}

func TestPanicsInTheAdmissionEndTheRestore(t *testing.T) {
	b := newBench(t)
	b.createRestore(t, true)
	b.config.Ledger = defectiveLedger{b.ledger}
	for range 3 {
		require.ErrorIs(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"), engine.ErrInternal)
	}
	require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
	b.requireGivenUp(t)
}

func TestARestoreOfAnotherServiceIsNotGivenUp(t *testing.T) {
	r := &velerov1.Restore{Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseWaitingForPluginOperations}}
	require.Equal(t, engine.NotNow[*velerov1.Restore]("nothing to do in phase WaitingForPluginOperations"), job.New(job.Config{}).GiveUp(r, engine.ErrInternal, true))
}
