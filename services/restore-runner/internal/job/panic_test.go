package job_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
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

func TestAPanicEndsTheRestoreOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*bench)
		where   string
	}{
		"before the location is open": {func(b *bench) {
			b.locations.err, b.locations.failed = noSuchHost(), func() { panic("a defect in opening") }
		}, "a defect in opening"},
		"while restoring": {func(b *bench) { b.locations.store = defective{Store: b.store, reads: true} }, "a defect in reading"},
		"beside it":       {func(b *bench) { b.locations.store = defective{Store: b.store, writes: true} }, "a defect in writing"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.tarball(t, 3)
			b.create(t, true)
			tt.prepare(b)
			var log bytes.Buffer
			b.config.Log = slog.New(slog.NewTextHandler(&log, nil))
			require.NoError(t, newRunner(b.config).Run(t.Context(), "r", "uid-r"))
			r := b.get(t)
			require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
			require.Equal(t, "internal error", r.Status.FailureReason)
			require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailed}, b.ended)
			require.Contains(t, log.String(), tt.where)
			require.Contains(t, log.String(), "panic_test.go", "the stack")
		})
	}
}

// defectiveLedger panics when it is asked whether a restore was admitted.
type defectiveLedger struct{ job.Ledger }

func (defectiveLedger) Get(context.Context, types.UID) (ledger.Entry, bool, error) {
	panic("a defect in admitting")
}

func TestAnAdmissionThatKeepsPanickingEndsTheRestore(t *testing.T) {
	for name, phase := range map[string]velerov1.RestorePhase{"new": "", "in progress": velerov1.RestorePhaseInProgress} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.create(t, true, func(r *velerov1.Restore) { r.Status.Phase = phase })
			b.config.Ledger = defectiveLedger{b.ledger}
			runner := newRunner(b.config)
			before := b.get(t)
			for range 5 {
				require.ErrorContains(t, runner.Run(t.Context(), "r", "uid-r"), "internal error")
				require.Equal(t, before, b.get(t))
			}
			require.NoError(t, runner.Run(t.Context(), "r", "uid-r"))
			r := b.get(t)
			require.Equal(t, velerov1.RestorePhaseFailed, r.Status.Phase)
			require.Equal(t, "internal error", r.Status.FailureReason)
			require.NotNil(t, r.Status.CompletionTimestamp)
			require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailed}, b.ended)
		})
	}
}

func TestARestoreOfAnotherServiceIsNotEndedForAPanic(t *testing.T) {
	r := &velerov1.Restore{Status: velerov1.RestoreStatus{Phase: velerov1.RestorePhaseWaitingForPluginOperations}}
	require.Equal(t, engine.NotNow[*velerov1.Restore]("nothing to do in phase WaitingForPluginOperations"), job.New(job.Config{}).AdmitPanicked(r))
}
