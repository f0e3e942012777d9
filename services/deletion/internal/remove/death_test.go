package remove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

var errDead = errors.New("the process is dead")

// mortal is a process that dies before or after its n-th write, whether to the cluster or to the
// bucket; 0 is never.
type mortal struct {
	mu     sync.Mutex
	dieAt  int
	before bool
	writes int
	dead   bool
	die    context.CancelFunc
}

// takeWrite takes one write; an error means that it does not happen.
func (m *mortal) takeWrite() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	if m.writes++; m.writes != m.dieAt {
		return nil
	}
	m.dead = true
	if m.before {
		m.die()
		return errDead
	}
	return nil
}

func (m *mortal) takeRead() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	return nil
}

// mortalClient is c as the mortal process uses it.
func (m *mortal) mortalClient(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return errors.Join(m.takeRead(), c.Get(ctx, key, obj, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(m.takeRead(), c.List(ctx, list, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := m.takeWrite(); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := m.takeWrite(); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
	})
}

// failStore makes b's store fail with the process.
func (m *mortal) failStore(b *bed) {
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpDelete {
			return m.takeWrite()
		}
		return m.takeRead()
	})
}

func restoreOf(name, backup string) *velerov1.Restore {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name)}}
	r.Spec.BackupName = backup
	return r
}

// dataLeft reports whether anything but neighbours is in the bucket.
func (b *bed) dataLeft() []string {
	return slices.DeleteFunc(b.store.Keys(), func(k string) bool { return slices.Contains(neighbours, k) })
}

// TestDeathAtEveryWrite is promise P5 under death: whichever write a process dies before or after,
// the backup stays listed while there is data, and another replica completes the deletion.
func TestDeathAtEveryWrite(t *testing.T) {
	for _, before := range []bool{true, false} {
		for k := 1; ; k++ {
			failed := newRequest("failed-before")
			failed.Status.Phase = velerov1.DeleteBackupRequestPhaseProcessed
			b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), failed, restoreOf("r", "b"), restoreOf("other", "b2"))
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			ctx, die := context.WithCancel(t.Context())
			m := &mortal{dieAt: k, before: before, die: die}
			m.failStore(b)
			_, err := b.newRemover(m.mortalClient(b.client), b).Process(ctx, "d")
			die()
			if m.takeRead() == nil {
				require.NoError(t, err)
				require.Greater(t, k, 10, "every step was reached")
				break
			}
			name := fmt.Sprintf("write %d, before: %v", k, before)
			left := b.dataLeft()
			if len(left) > 0 {
				require.NotNil(t, b.readBackup(), name)
				require.Contains(t, left, layout.BackupMetadata("b"), name)
			}
			b.store.Inject(nil)
			outcome, err := b.newRemover(b.client, b).Process(t.Context(), "d")
			require.NoError(t, err, name)
			require.Equal(t, Done, outcome, name)
			require.Equal(t, neighbours, b.store.Keys(), name)
			require.Nil(t, b.readBackup(), name)
			require.Nil(t, b.readRequest("d"), name)
			require.Nil(t, b.readRequest("failed-before"), name)
			require.Nil(t, findObject(b, &velerov1.Restore{}, "r"), name)
			require.NotNil(t, findObject(b, &velerov1.Restore{}, "other"), name)
		}
	}
}

// TestTheObjectIsDeletedByHandMeanwhile: a process dies in the middle and a user deletes the
// Backup, so that only the request is left as a trace of undeleted data. A new backup of
// that name is not harmed.
func TestTheObjectIsDeletedByHandMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		for k := 3; k <= 7; k++ {
			b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			ctx, die := context.WithCancel(t.Context())
			m := &mortal{dieAt: k, die: die}
			m.failStore(b)
			_, err := b.newRemover(m.mortalClient(b.client), b).Process(ctx, "d")
			die()
			require.Error(t, err)
			require.NotEmpty(t, b.dataLeft())
			require.NoError(t, b.client.Delete(t.Context(), newBackup("")))
			b.store.Inject(nil)
			if again {
				anew := newBackup("ReadyToStart")
				anew.UID = "new-uid"
				require.NoError(t, b.client.Create(t.Context(), anew))
			}
			outcome, err := b.newRemover(b.client, b).Process(t.Context(), "d")
			require.NoError(t, err)
			require.Equal(t, Done, outcome)
			require.Equal(t, neighbours, b.store.Keys())
			require.Nil(t, b.readRequest("d"))
			require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"), "it may be the new backup's")
			require.Equal(t, again, b.readBackup() != nil)
		}
	}
}

// TestANewBackupReservesTheDirectoryMeanwhile: the Backup is deleted by hand in the middle of its
// deletion and another of that name begins; what that one wrote stays.
func TestANewBackupReservesTheDirectoryMeanwhile(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseFailed), newRequest("d"))
	b.reserveDirectory("b-uid")
	for i := range 400 {
		b.store.Set(layout.Part("b", "b-uid", 1, "u", 0, i), nil)
	}
	var once sync.Once
	b.store.Inject(func(op memstore.Op, key string) error {
		if op == memstore.OpDelete && strings.Contains(key, "parts/b-uid/") {
			once.Do(func() {
				b.reserveDirectory("new-uid")
				b.store.Set(layout.Part("b", "new-uid", 1, "u", 0, 0), nil)
			})
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Contains(t, b.store.Keys(), layout.OwnerFile("b"))
	require.Contains(t, b.store.Keys(), layout.Part("b", "new-uid", 1, "u", 0, 0))
	require.Greater(t, len(b.store.Keys()), 200, "and the rest is for a sweep")
}

// TestANewBackupIsCommittedWhileUploadsAreSwept: the same, while the last removal before the files
// that identify the directory takes long. The new backup's files have the same names.
func TestANewBackupIsCommittedWhileUploadsAreSwept(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseFailed), newRequest("d"))
	b.reserveDirectory("b-uid")
	b.store.Set(layout.Part("b", "b-uid", 1, "u", 0, 0), nil)
	data, err := json.Marshal(&velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "new-uid"}})
	require.NoError(t, err)
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpSweep {
			b.reserveDirectory("new-uid")
			b.store.Set(layout.BackupMetadata("b"), data)
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Contains(t, b.store.Keys(), layout.OwnerFile("b"))
	require.Contains(t, b.store.Keys(), layout.BackupMetadata("b"))
}

// TestAWokenProcessDeletesNothing: a process was paused past the timeout, another one completed the
// deletion and a new backup of that name exists. What the woken one still has in hand is not
// deleted.
func TestAWokenProcessDeletesNothing(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	confirms := 0
	var mu sync.Mutex
	var after []string
	b.confirm = func() error {
		mu.Lock()
		defer mu.Unlock()
		if confirms++; confirms < 3 {
			return nil
		}
		if after == nil { // it wakes: everything is another's
			b.fillBucket(func() *velerov1.Backup { k := newBackup("Completed"); k.UID = "new-uid"; return k }())
			after = b.store.Keys()
		}
		return fmt.Errorf("%w: to another", claim.ErrLost)
	}
	require.Equal(t, Later, b.processRequest("d"))
	require.Equal(t, after, b.store.Keys())
	require.NotNil(t, b.readBackup())
	require.NotNil(t, b.readRequest("d"), "the outcome is another's to record")
}

// TestTwoReplicasAndTwoRequestsAtOnce end as one deletion.
func TestTwoReplicasAndTwoRequestsAtOnce(t *testing.T) {
	for range 8 {
		younger := newRequest("y")
		younger.CreationTimestamp = metav1.NewTime(start.Add(time.Second))
		b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), younger)
		b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
		var group sync.WaitGroup
		for _, replica := range []string{"one", "two"} {
			r := b.newRemover(b.client, &jobtest.Holder{Name: replica, Alive: map[string]bool{"one": true, "two": true}})
			for _, name := range []string{"d", "y"} {
				group.Go(func() {
					for {
						outcome, err := r.Process(t.Context(), name)
						if err == nil && outcome == Done {
							return
						}
					}
				})
			}
		}
		group.Wait()
		require.Equal(t, neighbours, b.store.Keys())
		require.Nil(t, b.readBackup())
		require.Nil(t, b.readRequest("d"))
		if y := b.readRequest("y"); y != nil {
			require.Equal(t, []string{refusalNotFound}, y.Status.Errors)
		}
	}
}

// TestARunnerThatComesFirstWins: the phase is swapped by either the deletion or the runner, never
// by both.
func TestARunnerThatComesFirstWins(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{velerov1.BackupPhaseInProgress, velerov1.BackupPhaseFinalizing} {
		k := newBackup(velerov1.BackupPhaseReadyToStart)
		k.Status.StartTimestamp = nil
		b := newBed(t, k, newRequest("d"))
		c := interceptor.NewClient(b.client, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if _, ok := obj.(*velerov1.DeleteBackupRequest); ok && b.readBackup().Status.Phase == velerov1.BackupPhaseReadyToStart {
					run := b.readBackup()
					run.Status.Phase = phase
					require.NoError(t, claim.Set(run, claim.Claim{Owner: "runner", Epoch: 1}))
					require.NoError(t, c.Update(ctx, run))
					b.reserveDirectory("b-uid")
				}
				return c.Patch(ctx, obj, patch, opts...)
			},
		})
		outcome, err := b.newRemover(c, b).Process(t.Context(), "d")
		require.NoError(t, err)
		require.Equal(t, Done, outcome)
		require.Equal(t, phase, b.readBackup().Status.Phase)
		require.Equal(t, []string{"backup is still in progress"}, b.readRequest("d").Status.Errors)
		require.Equal(t, []string{layout.OwnerFile("b")}, b.store.Keys())
	}
}

// One process gets the same hint twice, or finds by itself the object of a hint.
func TestOneProcessWorksOnARequestOnce(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	var once sync.Once
	b.store.Inject(func(op memstore.Op, _ string) error {
		if op == memstore.OpDelete {
			once.Do(func() {
				outcome, err := b.r.Process(t.Context(), "d")
				if outcome != Later || err != nil {
					t.Errorf("outcome %v, error %v", outcome, err)
				}
			})
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys())
}

func TestUnfinishedUploadsGoWithTheBackup(t *testing.T) {
	for _, refused := range []bool{false, true} {
		b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
		b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
		b.store.LeaveUpload(layout.BackupTarball("b"))
		b.store.LeaveUpload(layout.BackupTarball("b2"))
		want := []string{layout.BackupTarball("b2")}
		if refused {
			want = []string{layout.BackupTarball("b"), layout.BackupTarball("b2")}
			b.store.Inject(func(op memstore.Op, _ string) error {
				if op == memstore.OpSweep {
					return objectstore.ErrAccess
				}
				return nil
			})
		}
		require.Equal(t, Done, b.processRequest("d"))
		require.Equal(t, want, b.store.Uploads())
		require.Nil(t, b.readBackup())
	}
}

// velero-backup.json without a tarball means that the backup is being deleted.
func TestTheTarballGoesFirst(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	var mu sync.Mutex
	var order []string
	b.store.Inject(func(op memstore.Op, key string) error {
		mu.Lock()
		defer mu.Unlock()
		if op == memstore.OpDelete {
			order = append(order, key)
		}
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, layout.BackupTarball("b"), order[0])
	require.Equal(t, []string{layout.OwnerFile("b"), layout.BackupMetadata("b")}, order[len(order)-2:])
}
