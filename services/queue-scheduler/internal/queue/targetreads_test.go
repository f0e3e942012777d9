package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

// blackHole is a bucket that never answers; a read of it ends with its ctx.
type blackHole struct {
	*rules
	clock *clocktesting.FakeClock
	looks int
}

func (h *blackHole) Targets(ctx context.Context, _ *velerov1.Restore) ([]string, error) {
	h.looks++
	h.clock.Step(15 * time.Second)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A bucket that hangs costs a pass its budget once, and no other job its start.
func TestAHungBucketHoldsUpNobodyElse(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 5, Restores: 50}, interceptor.Funcs{})
	source := &velerov1.Backup{ObjectMeta: meta("source", 0)}
	source.Spec.StorageLocation, source.Status.Phase = "hole", velerov1.BackupPhaseCompleted
	require.NoError(t, b.c.Create(t.Context(), source))
	const total = 40
	for i := range total {
		r := &velerov1.Restore{ObjectMeta: meta(fmt.Sprintf("r%02d", i), i+1), Spec: velerov1.RestoreSpec{BackupName: "source"}}
		require.NoError(t, b.c.Create(t.Context(), r))
	}
	b.backup("beside", 100, "ns1")
	clock := clocktesting.NewFakeClock(start)
	hole := &blackHole{rules: b.rules, clock: clock}
	s := queue.New(queue.Config{
		Reader: b.c, Client: b.c, Namespace: "velero", Ledger: b.ledger, Publisher: b.wire, Validator: hole, Limits: b.limits,
		Metrics: counter{}, Tracer: b.tracer, Clock: clock, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, []string{"beside"}, b.admitted())
	require.LessOrEqual(t, clock.Since(start), 15*time.Second)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, 1, hole.looks, "not again at once")

	b.set("beside", velerov1.BackupPhaseCompleted)
	clock.Step(time.Minute)
	require.NoError(t, s.Pass(t.Context()))
	require.Equal(t, 2, hole.looks)
	require.Equal(t, []string{"r00"}, b.admitted())
	for i := range total {
		name := fmt.Sprintf("r%02d", i)
		require.NoError(t, s.Pass(t.Context()))
		require.Contains(t, b.admitted(), name)
		require.JSONEq(t, `["*"]`, b.getRestore(name).Annotations[holdfast.AnnotationNamespaces])
		b.setRestore(name, velerov1.RestorePhaseCompleted)
	}
}
