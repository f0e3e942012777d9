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

// newReplica is another process that syncs the same cluster and bucket through c.
func (b *bed) newReplica(c client.Client) *Syncer {
	return New(Config{
		Reader: c, Cached: c, Client: c, Namespace: "velero", Opener: b, Clock: b.clock, Log: slog.New(slog.DiscardHandler), Period: time.Minute,
	})
}

// backupPhases returns the phase of each Backup by name.
func (b *bed) backupPhases() map[string]velerov1.BackupPhase {
	b.t.Helper()
	var list velerov1.BackupList
	require.NoError(b.t, b.client.List(b.t.Context(), &list))
	phases := map[string]velerov1.BackupPhase{}
	for i := range list.Items {
		phases[list.Items[i].Name] = list.Items[i].Status.Phase
	}
	return phases
}

func newFilledBed(t *testing.T) *bed {
	b := newBed(t, existingBackup("gone", longName, velerov1.BackupPhaseCompleted), existingBackup("running", longName, velerov1.BackupPhaseInProgress))
	b.putBackup(storedBackup("a", velerov1.BackupPhaseCompleted))
	b.putBackup(storedBackup("b", velerov1.BackupPhasePartiallyFailed))
	b.putBackup(storedBackup("c", velerov1.BackupPhaseFailed))
	b.store.Set(layout.OwnerFile("running"), []byte("{}"))
	return b
}

var synced = map[string]velerov1.BackupPhase{"a": "Completed", "b": "PartiallyFailed", "c": "Failed", "running": "InProgress"}

// TestDeathAtEveryWriteOfASync: another replica finds what is left to do.
func TestDeathAtEveryWriteOfASync(t *testing.T) {
	for _, before := range []bool{true, false} {
		for k := 1; ; k++ {
			b := newFilledBed(t)
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
			_ = b.newReplica(c).Pass(ctx)
			die()
			if !dead {
				require.Greater(t, k, 5, "every write was reached")
				break
			}
			b.clock.Step(time.Minute)
			require.NoError(t, b.newReplica(b.client).Pass(t.Context()))
			require.Equal(t, synced, b.backupPhases(), "write %d, before: %v", k, before)
		}
	}
}

func TestTwoReplicasSyncAtOnce(t *testing.T) {
	for range 10 {
		b := newFilledBed(t)
		var group sync.WaitGroup
		for range 3 {
			s := b.newReplica(b.client)
			group.Go(func() {
				if err := s.Pass(t.Context()); err != nil {
					t.Errorf("sync: %v", err)
				}
			})
		}
		group.Wait()
		require.Equal(t, synced, b.backupPhases())
	}
}

// TestABackupOnItsWayOutIsNotImported: the tarball goes first, whichever cluster deletes; what is
// being written has no velero-backup.json yet.
func TestABackupOnItsWayOutIsNotImported(t *testing.T) {
	b := newBed(t)
	b.putBackup(storedBackup("leaving", velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupLog("leaving"), nil)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("leaving")))
	b.store.Set(layout.OwnerFile("begun"), []byte("{}"))
	b.store.Set(layout.BackupTarball("begun"), nil)
	b.store.Set(layout.BackupManifest("begun"), nil)
	failed := storedBackup("failed", velerov1.BackupPhaseFailed)
	b.putBackup(failed)
	require.NoError(t, b.store.Delete(t.Context(), layout.BackupTarball("failed")))
	b.runPass()
	require.Equal(t, map[string]velerov1.BackupPhase{"failed": "Failed"}, b.backupPhases())
}

// TestADeletionThatOvertakesASyncIsNotUndone: the backup is deleted, in full or in part, at each
// instant of its import.
func TestADeletionThatOvertakesASyncIsNotUndone(t *testing.T) {
	for name, remove := range map[string]func(*bed){
		"all of it":    func(b *bed) { b.emptyBackup() },
		"its tarball":  func(b *bed) { require.NoError(b.t, b.store.Delete(b.t.Context(), layout.BackupTarball("b"))) },
		"all but mark": func(b *bed) { b.emptyBackup(); b.store.Set(layout.BackupMetadata("b"), b.readMark()) },
	} {
		for k := 1; ; k++ {
			b := newBed(t)
			b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
			calls, done := 0, false
			b.store.Inject(func(memstore.Op, string) error {
				if calls++; calls == k {
					b.store.Inject(nil)
					remove(b)
					done = true
				}
				return nil
			})
			b.runPass()
			if !done {
				require.Greater(t, k, 8, "every call was reached")
				break
			}
			if k < 8 { // up to the second read
				require.Empty(t, b.backupPhases(), "%s at call %d", name, k)
				continue
			}
			b.emptyBackup() // the deletion ends
			b.clock.Step(time.Minute)
			b.runPass()
			require.Empty(t, b.backupPhases(), "%s at call %d", name, k)
		}
	}
}

// A process that dies between the creation of the object and the check whether the backup still
// exists leaves an object that the next sync removes.
func TestDeathBeforeTheSecondLook(t *testing.T) {
	b := newBed(t)
	b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpStat && b.getBackup("b") != nil {
			return errors.New("the process is dead")
		}
		return nil
	})
	require.Error(t, b.s.Pass(t.Context()))
	require.NotNil(t, b.getBackup("b"))
	b.store.Inject(nil)
	b.emptyBackup()
	b.clock.Step(time.Minute)
	b.runPass()
	require.Nil(t, b.getBackup("b"))
}

// TestTheObjectOfADeletionIsNotReplaced: while a deletion is under way its Backup exists, and stays
// as it is.
func TestTheObjectOfADeletionIsNotReplaced(t *testing.T) {
	b := newBed(t, existingBackup("b", longName, velerov1.BackupPhaseDeleting))
	b.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
	b.runPass()
	b.emptyBackup()
	b.clock.Step(time.Minute)
	b.runPass()
	require.Equal(t, map[string]velerov1.BackupPhase{"b": "Deleting"}, b.backupPhases())
}

// emptyBackup deletes the backup b from the bucket.
func (b *bed) emptyBackup() {
	b.t.Helper()
	_, err := objectstore.DeletePrefix(b.t.Context(), b.store, layout.BackupDir("b"))
	require.NoError(b.t, err)
}

// readMark is the velero-backup.json of backup b.
func (b *bed) readMark() []byte {
	b.t.Helper()
	other := newBed(b.t)
	other.putBackup(storedBackup("b", velerov1.BackupPhaseCompleted))
	data, ok := other.store.Bytes(layout.BackupMetadata("b"))
	require.True(b.t, ok)
	return data
}
