package queue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// An empty queue makes no passes on time, only when something changes; one with a job that waits or
// runs makes them every 15 s.
func TestAnEmptyQueueMakesNoPassesOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int32
		b := newBed(t, ledger.Limits{Backups: 1}, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*velerov1.BackupList); ok {
					lists.Add(1)
				}
				return c.List(ctx, list, opts...)
			},
		})
		s := b.newScheduler(withRealClock)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = s.Run(ctx) })
		defer group.Wait()
		defer cancel()
		passes := func(during time.Duration) int32 {
			before := lists.Load()
			<-time.After(during)
			synctest.Wait()
			return lists.Load() - before
		}
		synctest.Wait()
		require.Zero(t, passes(10*time.Minute))
		b.createBackup("new", 0)
		before := lists.Load()
		s.Wake()
		synctest.Wait()
		require.EqualValues(t, 1, lists.Load()-before)
		require.NotEmpty(t, b.getBackup("new").Status.Phase)
		require.EqualValues(t, 40, passes(10*time.Minute))
	})
}
