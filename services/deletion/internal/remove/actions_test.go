package remove

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/deletion/internal/backuptest"
	"github.com/holdfast-io/holdfast/services/deletion/internal/itemaction"
)

// actionsFunc implements Actions.
type actionsFunc func(ctx context.Context, job itemaction.Job) error

func (f actionsFunc) Run(ctx context.Context, job itemaction.Job) error { return f(ctx, job) }

func TestAnActionThatFailsKeepsEverything(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	keys := b.store.Keys()
	b.r.Actions = actionsFunc(func(_ context.Context, job itemaction.Job) error {
		require.Equal(t, velerov1.BackupPhaseDeleting, job.Backup.Status.Phase)
		return &itemaction.FailedError{Errs: []error{errors.New("plugin a.io/b: Execute of Pod a/p: boom"), errors.New("plugin a.io/x: gone")}, More: 3}
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, keys, b.store.Keys())
	require.Equal(t, velerov1.BackupPhaseDeleting, b.readBackup().Status.Phase)
	require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))
	d := b.readRequest("d")
	require.Equal(t, velerov1.DeleteBackupRequestPhaseProcessed, d.Status.Phase)
	require.Equal(t, []string{
		"delete item actions: plugin a.io/b: Execute of Pod a/p: boom", "delete item actions: plugin a.io/x: gone",
		"delete item actions: and 3 more errors",
	}, d.Status.Errors)

	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { return errors.New("no discovery") })
	require.NoError(t, b.client.Create(t.Context(), newRequest("e")))
	require.Equal(t, Done, b.processRequest("e"))
	require.Equal(t, []string{"delete item actions: no discovery"}, b.readRequest("e").Status.Errors)
	require.Equal(t, keys, b.store.Keys())

	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { return nil })
	require.NoError(t, b.client.Create(t.Context(), newRequest("f")))
	require.Equal(t, Done, b.processRequest("f"))
	require.Equal(t, neighbours, b.store.Keys())
	require.Nil(t, b.readBackup())
	require.Nil(t, findObject(b, &velerov1.Restore{}, "r"))
	for _, name := range []string{"d", "e", "f"} {
		require.Nil(t, b.readRequest(name), name)
	}
}

// A bucket that cannot be read for a while keeps the restores too: actions come before these go.
func TestNothingGoesBeforeActionsCouldBeAsked(t *testing.T) {
	for _, acts := range []bool{true, false} {
		b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
		b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
		if acts {
			b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error { return errors.New("asked") })
		}
		b.injectFault(memstore.OpGet, layout.BackupMetadata("b"), errors.New("bucket is away"))
		require.Equal(t, Done, b.processRequest("d"))
		errs := b.readRequest("d").Status.Errors
		require.Len(t, errs, 1)
		require.Contains(t, errs[0], "bucket is away")
		require.Equal(t, acts, strings.HasPrefix(errs[0], "delete item actions: not run: "), errs[0])
		require.Equal(t, acts, findObject(b, &velerov1.Restore{}, "r") != nil, "without actions restores go even when the data stays")
		require.NotNil(t, b.readBackup())
	}
}

func TestActionsComeBeforeAnythingIsRemoved(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	keys := b.store.Keys()
	b.r.Actions = actionsFunc(func(ctx context.Context, job itemaction.Job) error {
		require.Zero(t, b.store.Calls(memstore.OpDelete))
		require.Equal(t, keys, b.store.Keys())
		require.NotNil(t, findObject(b, &velerov1.Restore{}, "r"))
		return job.Confirm(ctx)
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, neighbours, b.store.Keys())
}

func TestActionsDoNotSeeAnotherBackup(t *testing.T) {
	theirs := newBackup(velerov1.BackupPhaseCompleted)
	theirs.UID, theirs.Status.StartTimestamp = "their-uid", &metav1.Time{Time: start.Add(-24 * time.Hour)}
	never := actionsFunc(func(context.Context, itemaction.Job) error { return errors.New("shown") })
	b := newBed(t, newBackup(velerov1.BackupPhaseFailed), newRequest("d"))
	b.fillBucket(theirs)
	b.r.Actions = never
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readBackup())

	k := newBackup(velerov1.BackupPhaseNew)
	k.Status.StartTimestamp = nil
	b = newBed(t, k, newRequest("d"))
	b.fillBucket(theirs)
	b.r.Actions = never
	require.Equal(t, Done, b.processRequest("d"))
	require.Nil(t, b.readBackup())
}

// While actions worked the directory became another backup's.
func TestADirectoryThatWasReplacedWhileActionsWorkedStays(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	var keys []string
	b.r.Actions = actionsFunc(func(context.Context, itemaction.Job) error {
		anew := newBackup(velerov1.BackupPhaseCompleted)
		anew.UID, anew.Status.StartTimestamp = "new-uid", &metav1.Time{Time: start}
		b.fillBucket(anew)
		keys = b.store.Keys()
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, keys, b.store.Keys())
}

// A user deleted the Backup after a process died in the middle: actions get it from its file in the
// bucket.
func TestActionsOfADeletionWhoseObjectIsGone(t *testing.T) {
	d := newRequest("d")
	d.Labels = map[string]string{velerov1.LabelBackupUID: "b-uid"}
	d.Annotations = map[string]string{annotationLocation: "default"}
	d.Status.Phase = velerov1.DeleteBackupRequestPhaseInProgress
	b := newBed(t, d)
	stored := newBackup(velerov1.BackupPhaseCompleted)
	stored.Namespace, stored.Spec.SnapshotMoveData = "elsewhere", new(bool)
	b.fillBucket(stored)
	asked := 0
	b.r.Actions = actionsFunc(func(_ context.Context, job itemaction.Job) error {
		asked++
		require.NotNil(t, job.Backup.Spec.SnapshotMoveData)
		require.Equal(t, "velero", job.Backup.Namespace)
		return nil
	})
	require.Equal(t, Done, b.processRequest("d"))
	require.Equal(t, 1, asked)
	require.Equal(t, neighbours, b.store.Keys())
	require.Nil(t, b.readRequest("d"))
}

func TestALostClaimInterruptsActions(t *testing.T) {
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"))
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	keys := b.store.Keys()
	b.r.Actions = actionsFunc(func(ctx context.Context, _ itemaction.Job) error {
		b.lose(claim.ErrLost)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.Equal(t, Later, b.processRequest("d"))
	require.Equal(t, keys, b.store.Keys())
	require.Empty(t, b.readRequest("d").Status.Errors, "the outcome is another's to record")
}

// TestAHungActionDelaysOnlyItsOwnDeletion: two deletions in one process, of which one hangs in a
// plugin.
func TestAHungActionDelaysOnlyItsOwnDeletion(t *testing.T) {
	other, d2 := newBackup(velerov1.BackupPhaseCompleted), newRequest("d2")
	other.Name, other.UID = "b2", "b2-uid"
	d2.Spec.BackupName = "b2"
	b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), other, d2)
	b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
	b.store.Set(layout.BackupMetadata("b2"), []byte(`{"metadata":{"uid":"b2-uid"}}`))
	hung, release := make(chan struct{}), make(chan struct{})
	b.r.Actions = actionsFunc(func(_ context.Context, job itemaction.Job) error {
		if job.Backup.Name == "b" {
			close(hung)
			<-release
		}
		return nil
	})
	done := make(chan error, 1)
	go func() {
		_, err := b.r.Process(t.Context(), "d")
		done <- err
	}()
	<-hung
	require.Equal(t, Done, b.processRequest("d2"))
	require.Nil(t, b.readRequest("d2"))
	require.NotContains(t, b.store.Keys(), layout.BackupMetadata("b2"))
	require.NotNil(t, b.readBackup())
	close(release)
	require.NoError(t, <-done)
	require.Nil(t, b.readBackup())
}

// TestAHungActionLeavesAPlace: a process with two places has two deletions that meet a hung action, and a
// third one without it.
func TestAHungActionLeavesAPlace(t *testing.T) {
	b := newBed(t)
	for _, name := range []string{"one", "two", "three"} {
		k, d := newBackup(velerov1.BackupPhaseCompleted), newRequest(name)
		k.Name, k.UID, d.Spec.BackupName = name, types.UID("uid-"+name), name
		require.NoError(t, b.client.Create(t.Context(), k))
		require.NoError(t, b.client.Create(t.Context(), d))
		if name != "three" {
			backuptest.Write(t, b.store, name, backuptest.Object("pods", "Pod", "a", "p"))
		}
		b.store.Set(layout.BackupMetadata(name), []byte(`{"metadata":{"uid":"uid-`+name+`"}}`))
	}
	hung := &hungAction{called: make(chan struct{}, 2), release: make(chan struct{})}
	b.r = b.newRemoverOf(b.client, b, 2)
	b.r.Actions = &itemaction.Runner{
		Open:     func(context.Context, *slog.Logger) itemaction.Session { return countedSession{hung} },
		Discover: func(context.Context) (selection.Resolver, error) { return noNames{}, nil },
		Log:      slog.New(slog.DiscardHandler), Plugins: &itemaction.PluginLimit{Deletions: 1},
	}
	first, second := make(chan error, 1), make(chan error, 1)
	process := func(name string, result chan<- error) {
		_, err := b.r.Process(t.Context(), name)
		result <- err
	}
	go process("one", first)
	<-hung.called
	go process("two", second)
	select {
	case err := <-second:
		require.NoError(t, err)
	case <-hung.called:
		require.Fail(t, "both deletions wait for the action")
	}
	require.Equal(t, []string{"delete item actions: plugin a.io/x: works for other deletions"}, b.readRequest("two").Status.Errors)
	require.Equal(t, Done, b.processRequest("three"))
	require.Nil(t, b.readRequest("three"))

	close(hung.release)
	require.NoError(t, <-first)
	b.clock.Step(busyPause)
	require.Equal(t, Done, b.processRequest("two"))
	require.Empty(t, b.store.Keys())
}

// hungAction does not answer before it is released.
type hungAction struct{ called, release chan struct{} }

func (*hungAction) Name() string { return "a.io/x" }

func (*hungAction) AppliesTo(context.Context) (action.Selector, error) { return action.Selector{}, nil }

func (h *hungAction) Execute(ctx context.Context, _ *action.Object, _ *action.Backup) error {
	h.called <- struct{}{}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// injectFault makes an operation on some keys fail.
func (b *bed) injectFault(op memstore.Op, part string, err error) {
	b.store.Inject(func(o memstore.Op, key string) error {
		if o == op && strings.Contains(key, part) {
			return err
		}
		return nil
	})
}

// counted is an action that counts what it is shown.
type counted struct {
	name string
	mu   *sync.Mutex
	seen map[string]int
}

func (c *counted) Name() string { return c.name }

func (*counted) AppliesTo(context.Context) (action.Selector, error) { return action.Selector{}, nil }

func (c *counted) Execute(ctx context.Context, object *action.Object, _ *action.Backup) error {
	id, err := object.Identity()
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[c.name+" "+id.String()]++
	return nil
}

type countedSession []action.DeleteItem

func (s countedSession) DeleteItems() []action.DeleteItem { return s }

func (countedSession) Close() {}

type noNames struct{}

func (noNames) Resolve(string) (gr schema.GroupResource, namespaced, ok bool) {
	return gr, false, false
}

// TestDeathAtEveryWriteWithActions: whichever write a process dies before or after, every action
// has seen every item before the data is gone, and at most once more than that.
func TestDeathAtEveryWriteWithActions(t *testing.T) {
	items := backuptest.Objects("pods", "Pod", "a", 5)
	for _, before := range []bool{true, false} {
		for k := 1; ; k++ {
			b := newBed(t, newBackup(velerov1.BackupPhaseCompleted), newRequest("d"), restoreOf("r", "b"))
			b.fillBucket(newBackup(velerov1.BackupPhaseCompleted))
			for _, key := range []string{layout.BackupTarball("b"), layout.BackupManifest("b")} {
				require.NoError(t, b.store.Delete(t.Context(), key))
			}
			backuptest.Write(t, b.store, "b", items...)
			seen, mu := map[string]int{}, sync.Mutex{}
			runner := &itemaction.Runner{
				Open: func(context.Context, *slog.Logger) itemaction.Session {
					return countedSession{&counted{"b.io/a", &mu, seen}, &counted{"a.io/b", &mu, seen}}
				},
				Discover: func(context.Context) (selection.Resolver, error) { return noNames{}, nil },
				Log:      slog.New(slog.DiscardHandler),
			}
			ctx, die := context.WithCancel(t.Context())
			m := &mortal{dieAt: k, before: before, die: die}
			b.store.Inject(func(op memstore.Op, _ string) error {
				if op == memstore.OpDelete || op == memstore.OpCreate {
					return m.takeWrite()
				}
				return m.takeRead()
			})
			first := b.newRemover(m.mortalClient(b.client), b)
			first.Actions = runner
			_, err := first.Process(ctx, "d")
			die()
			name := fmt.Sprintf("write %d, before: %v", k, before)
			lived := m.takeRead() == nil
			if !lived {
				if len(seen) < 2*len(items) {
					require.Contains(t, b.store.Keys(), layout.BackupTarball("b"), name)
					require.NotNil(t, b.readBackup(), name)
				}
				b.store.Inject(nil)
				second := b.newRemover(b.client, b)
				second.Actions = runner
				_, err = second.Process(t.Context(), "d")
			}
			require.NoError(t, err, name)
			require.Len(t, seen, 2*len(items), name)
			for pair, times := range seen {
				require.LessOrEqual(t, times, 2, "%s: %s", name, pair)
				if lived {
					require.Equal(t, 1, times, pair)
				}
			}
			require.Equal(t, neighbours, b.store.Keys(), name)
			require.Nil(t, b.readBackup(), name)
			require.Nil(t, b.readRequest("d"), name)
			if lived {
				require.Greater(t, k, 10, "every step was reached")
				break
			}
		}
	}
}
