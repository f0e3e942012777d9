package backupsync

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// replica is another process that syncs the same cluster and bucket through c.
func (b *bed) replica(c client.Client) *Syncer {
	return New(Config{
		Reader: c, Client: c, Namespace: "velero", Opener: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Period: time.Minute,
	})
}

// phases returns the phase of each Backup by name.
func (b *bed) phases() map[string]velerov1.BackupPhase {
	b.t.Helper()
	var list velerov1.BackupList
	require.NoError(b.t, b.client.List(b.t.Context(), &list))
	phases := map[string]velerov1.BackupPhase{}
	for i := range list.Items {
		phases[list.Items[i].Name] = list.Items[i].Status.Phase
	}
	return phases
}

func filled(t *testing.T) *bed {
	b := newBed(t, existing("gone", longName, velerov1.BackupPhaseCompleted), existing("running", longName, velerov1.BackupPhaseInProgress))
	b.put(stored("a", velerov1.BackupPhaseCompleted))
	b.put(stored("b", velerov1.BackupPhasePartiallyFailed))
	b.put(stored("c", velerov1.BackupPhaseFailed))
	b.store.Set(layout.OwnerFile("running"), []byte("{}"))
	return b
}

var synced = map[string]velerov1.BackupPhase{"a": "Completed", "b": "PartiallyFailed", "c": "Failed", "running": "InProgress"}

// TestDeathAtEveryWriteOfASync: another replica finds what is left to do.
func TestDeathAtEveryWriteOfASync(t *testing.T) {
	for _, before := range []bool{true, false} {
		for k := 1; ; k++ {
			b := filled(t)
			ctx, die := context.WithCancel(t.Context())
			writes, dead := 0, false
			write := func(do func() error) error {
				if dead {
					return context.Canceled
				}
				if writes++; writes == k {
					dead = true
					if before {
						die()
						return context.Canceled
					}
					defer die()
				}
				return do()
			}
			withWatch, ok := b.client.(client.WithWatch)
			require.True(t, ok)
			c := interceptor.NewClient(withWatch, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					return write(func() error { return c.Create(ctx, obj, opts...) })
				},
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					return write(func() error { return c.Patch(ctx, obj, patch, opts...) })
				},
				Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
					return write(func() error { return c.Delete(ctx, obj, opts...) })
				},
			})
			_ = b.replica(c).Pass(ctx)
			die()
			if !dead {
				require.Greater(t, k, 5, "every write was reached")
				break
			}
			b.clock.Step(time.Minute)
			require.NoError(t, b.replica(b.client).Pass(t.Context()))
			require.Equal(t, synced, b.phases(), "write %d, before: %v", k, before)
		}
	}
}

func TestTwoReplicasSyncAtOnce(t *testing.T) {
	for range 10 {
		b := filled(t)
		var group sync.WaitGroup
		for range 3 {
			s := b.replica(b.client)
			group.Go(func() {
				if err := s.Pass(t.Context()); err != nil {
					t.Errorf("sync: %v", err)
				}
			})
		}
		group.Wait()
		require.Equal(t, synced, b.phases())
	}
}

// TestABackupOnItsWayOutIsNotImported: the tarball goes first, whichever cluster deletes; what is
// being written has no velero-backup.json yet.
func TestABackupOnItsWayOutIsNotImported(t *testing.T) {
	b := newBed(t)
	b.put(stored("leaving", velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupLog("leaving"), nil)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("leaving")))
	b.store.Set(layout.OwnerFile("begun"), []byte("{}"))
	b.store.Set(layout.BackupTarball("begun"), nil)
	b.store.Set(layout.BackupManifest("begun"), nil)
	failed := stored("failed", velerov1.BackupPhaseFailed)
	b.put(failed)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("failed")))
	b.pass()
	require.Equal(t, map[string]velerov1.BackupPhase{"failed": "Failed"}, b.phases())
}

// TestADeletionThatOvertakesASyncIsNotUndone: the backup is deleted, in full or in part, at each
// instant of its import.
func TestADeletionThatOvertakesASyncIsNotUndone(t *testing.T) {
	for name, remove := range map[string]func(*bed){
		"all of it":    func(b *bed) { b.empty() },
		"its tarball":  func(b *bed) { require.NoError(b.t, b.store.Delete(b.t.Context(), layout.BackupTarball("b"))) },
		"all but mark": func(b *bed) { b.empty(); b.store.Set(layout.BackupMetadata("b"), b.mark()) },
	} {
		for k := 1; ; k++ {
			b := newBed(t)
			b.put(stored("b", velerov1.BackupPhaseCompleted))
			calls, done := 0, false
			b.store.Inject(func(memstore.Op, string) error {
				if calls++; calls == k {
					b.store.Inject(nil)
					remove(b)
					done = true
				}
				return nil
			})
			b.pass()
			if !done {
				require.Greater(t, k, 8, "every call was reached")
				break
			}
			if k < 8 { // up to the second read
				require.Empty(t, b.phases(), "%s at call %d", name, k)
				continue
			}
			b.empty() // the deletion ends
			b.clock.Step(time.Minute)
			b.pass()
			require.Empty(t, b.phases(), "%s at call %d", name, k)
		}
	}
}

// A process that dies between the creation of the object and the check whether the backup still
// exists leaves an object that the next sync removes.
func TestDeathBeforeTheSecondLook(t *testing.T) {
	b := newBed(t)
	b.put(stored("b", velerov1.BackupPhaseCompleted))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpStat && b.get("b") != nil {
			return errors.New("the process is dead")
		}
		return nil
	})
	require.Error(t, b.s.Pass(t.Context()))
	require.NotNil(t, b.get("b"))
	b.store.Inject(nil)
	b.empty()
	b.clock.Step(time.Minute)
	b.pass()
	require.Nil(t, b.get("b"))
}

// TestTheObjectOfADeletionIsNotReplaced: while a deletion is under way its Backup exists, and stays
// as it is.
func TestTheObjectOfADeletionIsNotReplaced(t *testing.T) {
	b := newBed(t, existing("b", longName, velerov1.BackupPhaseDeleting))
	b.put(stored("b", velerov1.BackupPhaseCompleted))
	b.pass()
	b.empty()
	b.clock.Step(time.Minute)
	b.pass()
	require.Equal(t, map[string]velerov1.BackupPhase{"b": "Deleting"}, b.phases())
}

// empty deletes the backup b from the bucket.
func (b *bed) empty() {
	b.t.Helper()
	_, err := objectstore.DeletePrefix(b.t.Context(), b.store, layout.BackupDir("b"))
	require.NoError(b.t, err)
}

// mark is the velero-backup.json of backup b.
func (b *bed) mark() []byte {
	b.t.Helper()
	other := newBed(b.t)
	other.put(stored("b", velerov1.BackupPhaseCompleted))
	data, ok := other.store.Bytes(layout.BackupMetadata("b"))
	require.True(b.t, ok)
	return data
}
