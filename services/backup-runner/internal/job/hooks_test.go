package job

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// database is a Pod that can be frozen and thawed.
type database struct {
	mu             sync.Mutex
	freezes, thaws int
	// after, if not nil, is called when the Pod was frozen.
	after func(ctx context.Context)
}

func (d *database) Run(ctx context.Context, cmd *podexec.Command) (podexec.Output, error) {
	if freeze := d.countCommand(cmd); freeze && d.after != nil {
		d.after(ctx)
	}
	return podexec.Output{}, nil
}

func (d *database) countCommand(cmd *podexec.Command) (freeze bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cmd.Args[0] == "freeze" {
		d.freezes++
		return true
	}
	d.thaws++
	return false
}

func (d *database) isFrozen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freezes > d.thaws
}

// newDatabase returns a world with one Pod that has hooks.
func newDatabase(t *testing.T) (*world, *database) {
	t.Helper()
	w, db := newWorld(t), &database{}
	w.Exec = db
	w.api.Add("pods", kubetest.Object{Namespace: "a", Name: "db", Annotations: map[string]string{
		"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"},
		Body: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main"}}}, "status": map[string]any{"phase": "Running"}}})
	return w, db
}

// A bucket that refuses while a Pod is between its hooks ends the backup on the object alone: the Pod
// is thawed before, whichever calls the bucket refuses.
func TestABucketThatRefusesLeavesNoPodFrozen(t *testing.T) {
	for name, ops := range map[string][]memstore.Op{
		"writes":   {memstore.OpCreate, memstore.OpPut},
		"anything": {memstore.OpCreate, memstore.OpPut, memstore.OpGet, memstore.OpStat, memstore.OpList},
	} {
		t.Run(name, func(t *testing.T) {
			w, db := newDatabase(t)
			refused := map[memstore.Op]bool{}
			for _, op := range ops {
				refused[op] = true
			}
			w.store.Inject(func(op memstore.Op, _ string) error {
				if refused[op] && db.isFrozen() {
					return objectstore.ErrAccess
				}
				return nil
			})
			b := w.admitBackup(t, "b1")
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
			require.Equal(t, 1, db.freezes)
			require.False(t, db.isFrozen())
		})
	}
}

// A bucket that does not answer keeps no Pod between its hooks: the post hooks run before they are
// recorded, and that the rest of the backup of the Pod was not between its hooks is an error of it.
func TestABucketThatIsAwayLeavesNoPodFrozen(t *testing.T) {
	w, db := newDatabase(t)
	w.StorePatience = 2 * time.Second
	w.store.Inject(func(memstore.Op, string) error {
		if db.isFrozen() {
			return errGone
		}
		return nil
	})
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhasePartiallyFailed, got.Status.Phase)
	require.Equal(t, []int{1, 1}, []int{db.freezes, db.thaws})
	require.Equal(t, 1, got.Status.Errors)
	require.Equal(t, &velerov1.HookStatus{HooksAttempted: 2}, got.Status.HookStatus)
	require.Contains(t, w.readDocument(t, layout.BackupResults("b1")), "its post hooks ran before it was backed up")
}

// A backup that fails because its bucket is away leaves no Pod frozen.
func TestABackupWithoutItsBucketLeavesNoPodFrozen(t *testing.T) {
	w, db := newDatabase(t)
	w.StorePatience = 0
	w.store.Inject(func(memstore.Op, string) error {
		if db.freezes > 0 {
			return errGone
		}
		return nil
	})
	b := w.admitBackup(t, "b1")
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, velerov1.BackupPhaseFailed, w.readBackup(t, b).Status.Phase)
	require.Equal(t, []int{1, 1}, []int{db.freezes, db.thaws})
}

// A holder that loses a backup without a successor runs the post hooks that are owed; otherwise the
// successor does.
func TestALostBackupLeavesNoPodFrozen(t *testing.T) {
	for name, tc := range map[string]struct {
		lose   func(t *testing.T, w *world, b *velerov1.Backup)
		frozen bool
	}{
		"deleted": {func(t *testing.T, w *world, b *velerov1.Backup) {
			require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
		}, false},
		"deleted and made anew": {func(t *testing.T, w *world, b *velerov1.Backup) {
			require.NoError(t, w.client.Delete(t.Context(), w.readBackup(t, b)))
			other := &velerov1.Backup{}
			other.Namespace, other.Name, other.UID = b.Namespace, b.Name, "uid-2"
			require.NoError(t, w.client.Create(t.Context(), other))
		}, false},
		"ended without its runner": {func(t *testing.T, w *world, b *velerov1.Backup) {
			ended := w.readBackup(t, b)
			ended.Status.Phase = velerov1.BackupPhaseFailed
			require.NoError(t, mark.SetPostHooks(ended, mark.PostHooks{Owed: true}))
			require.NoError(t, w.client.Update(t.Context(), ended))
		}, false},
		"completed by a successor": {func(t *testing.T, w *world, b *velerov1.Backup) {
			ended := w.readBackup(t, b)
			ended.Status.Phase = velerov1.BackupPhaseCompleted
			require.NoError(t, w.client.Update(t.Context(), ended))
		}, true},
		"cancelled, and ended by a successor": {func(t *testing.T, w *world, b *velerov1.Backup) {
			w.requestCancel(t, b, false)
			ended := w.readBackup(t, b)
			ended.Status.Phase = velerov1.BackupPhaseFailed
			require.NoError(t, w.client.Update(t.Context(), ended))
		}, true},
		"cancelled, and taken": {func(t *testing.T, w *world, b *velerov1.Backup) {
			w.requestCancel(t, b, false)
			taken := w.readBackup(t, b)
			require.NoError(t, claim.Set(taken, claim.Claim{Epoch: 2}))
			require.NoError(t, w.client.Update(t.Context(), taken))
		}, true},
		"taken": {func(t *testing.T, w *world, b *velerov1.Backup) {
			taken := w.readBackup(t, b)
			require.NoError(t, claim.Set(taken, claim.Claim{Owner: "other", Epoch: 2}))
			require.NoError(t, w.client.Update(t.Context(), taken))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, db := newDatabase(t)
			b := w.admitBackup(t, "b1")
			db.after = func(ctx context.Context) {
				tc.lose(t, w, b)
				w.instance.LoseClaim()
				<-ctx.Done()
			}
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, 1, db.freezes)
			require.Equal(t, tc.frozen, db.isFrozen())
		})
	}
}
