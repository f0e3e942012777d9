package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// A hundred positions change at once: they are written front first, one every 200 ms however often
// a pass is asked for, and are right within 30 s.
func TestPositionsAreWrittenAtABoundedRate(t *testing.T) {
	const queued = 100
	b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{})
	require.NoError(t, jobtest.Admit(t.Context(), b.ledger, ledger.Entry{
		UID: "uid-running", Kind: ledger.KindBackup, Namespace: "velero", Name: "running", Namespaces: []string{"*"}, Since: start,
	}, ledger.Limits{}))
	b.createBackup("running", 0)
	b.setPhase("running", velerov1.BackupPhaseInProgress)
	for i := range queued {
		o := &velerov1.Backup{ObjectMeta: objectMeta(fmt.Sprintf("b%03d", i), i)}
		o.Annotations = map[string]string{"holdfast.io/queue-sequence": fmt.Sprint(i + 1)}
		o.Status.Phase, o.Status.QueuePosition = velerov1.BackupPhaseQueued, i+2
		require.NoError(t, b.c.Create(t.Context(), o))
	}
	right := func() (n int) {
		list := &velerov1.BackupList{}
		require.NoError(t, b.c.List(t.Context(), list, client.InNamespace("velero")))
		for i := range list.Items {
			if o := &list.Items[i]; o.Status.Phase == velerov1.BackupPhaseQueued && fmt.Sprintf("b%03d", o.Status.QueuePosition-1) == o.Name {
				n++
			}
		}
		return n
	}
	s := b.newScheduler()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(ctx) })
	defer group.Wait()
	defer cancel()
	b.requireEventually("the tickers", b.clock.HasWaiters)
	for n := range queued {
		s.Wake() // passes in between write none
		b.clock.Step(199 * time.Millisecond)
		require.Equal(t, n, right())
		b.clock.Step(time.Millisecond)
		b.requireEventually("the next position", func() bool { return right() == n+1 })
		require.Equal(t, n+1, b.getBackup(fmt.Sprintf("b%03d", n)).Status.QueuePosition, "front first")
	}
	require.Less(t, b.clock.Since(start), 30*time.Second)
}
