package collect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
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
	c := &cloud{knows: hasNativeSnapshot, before: func(volume string) {
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
		require.NoError(t, jobtest.Admit(t.Context(), book, ledger.Entry{
			UID: uid, Kind: ledger.KindBackup, Namespace: "velero", Name: string(uid), Namespaces: []string{string(uid)},
		}, ledger.Limits{}))
		s := newSetup(t, newDiskServer(), velerov1.BackupSpec{}).withSnapshots(c, "main")
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
		group.Go(func() { s.runJob(t) })
	}
	group.Wait()
	select {
	case <-together:
		t.Fatal("a volume was snapshotted by both at once")
	default:
	}
	require.Equal(t, 2, c.taken["disk-pv-good"])
}

// A process that dies between the two loses the id of a snapshot that is taken: the next holder has
// to call it failed, and the provider keeps a snapshot that no backup lists.
func TestAVolumeIsUnlockedAfterItsSnapshotIsRecorded(t *testing.T) {
	for name, away := range map[string]bool{"recorded": false, "the bucket is away": true} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, newDiskServer(), velerov1.BackupSpec{})
			c := &cloud{knows: func(pv string) bool { return pv == "pv-good" }}
			if away {
				c.before = func(string) { s.store.Inject(func(memstore.Op, string) error { return errDead }) }
			}
			s.withSnapshots(c, "main")
			var unlocked, unrecorded []string
			s.job.LockVolume = func(_ context.Context, volume string) (func(), error) {
				return func() {
					unlocked = append(unlocked, volume)
					recorded := slices.ContainsFunc(s.store.Keys(), func(key string) bool {
						data, _ := s.store.Bytes(key)
						return strings.Contains(key, "/checkpoint-") && strings.Contains(string(data), `"snap-`+volume+`"`)
					})
					if !recorded {
						unrecorded = append(unrecorded, volume)
					}
				}, nil
			}
			_, err := Run(t.Context(), s.cfg, s.job)
			require.Equal(t, 1, c.taken["disk-pv-good"])
			if away {
				require.ErrorIs(t, err, errDead)
				require.Empty(t, unlocked, "the lock stays with the backup")
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{"disk-pv-good"}, unlocked)
			require.Empty(t, unrecorded)
		})
	}
}
