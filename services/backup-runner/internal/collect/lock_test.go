package collect

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// Two backups that both take the cluster-scoped volumes, whatever their namespaces, ask the
// provider for snapshots of one volume at the same time.
func TestTwoBackupsNeverSnapshotAVolumeAtOnce(t *testing.T) {
	k := fake.NewClientBuilder().Build()
	book := ledger.New(k, k, "velero")
	waiting := make(chan struct{})
	waits := sync.OnceFunc(func() { close(waiting) })
	var mu sync.Mutex
	inside := map[string]int{}
	together := make(chan struct{})
	meet := sync.OnceFunc(func() { close(together) })
	c := &cloud{knows: native, before: func(volume string) {
		mu.Lock()
		inside[volume]++
		if inside[volume] > 1 {
			meet()
		}
		mu.Unlock()
		select {
		case <-waiting: // the other one is held back
		case <-together:
		}
		mu.Lock()
		inside[volume]--
		mu.Unlock()
	}}
	var group sync.WaitGroup
	for _, uid := range []types.UID{"one", "two"} {
		require.NoError(t, book.Admit(t.Context(), ledger.Entry{
			UID: uid, Kind: ledger.KindBackup, Namespace: "velero", Name: string(uid), Namespaces: []string{string(uid)},
		}, ledger.Limits{}))
		s := newSetup(t, disks(), velerov1.BackupSpec{}).snapshots(c, "main")
		s.job.LockVolume = func(ctx context.Context, volume string) (func(), error) {
			for {
				err := book.LockVolume(ctx, uid, volume)
				if !errors.Is(err, ledger.ErrVolumeBusy) {
					return func() {
						if err := book.UnlockVolume(ctx, uid, volume); err != nil {
							t.Error(err)
						}
					}, err
				}
				waits()
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Millisecond):
				}
			}
		}
		group.Go(func() { s.run(t) })
	}
	group.Wait()
	select {
	case <-together:
		t.Fatal("a volume was snapshotted by both at once")
	default:
	}
	require.Equal(t, 2, c.taken["disk-pv-good"])
}
