package finalize_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
)

// thaw notes which Pods it ran in.
type thaw struct {
	mu  sync.Mutex
	ran []string
	err error
}

func (e *thaw) Run(_ context.Context, cmd *podexec.Command) (podexec.Output, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ran = append(e.ran, cmd.Pod+" "+cmd.Container+" "+cmd.Args[0])
	return podexec.Output{}, e.err
}

// A backup that fails, or is cancelled, between the hooks of a Pod still runs its post hooks, each
// once: a holder that comes back to it finds that they have run.
func TestAFailureRunsThePostHooksItOwes(t *testing.T) {
	of := func(name string) checkpoint.Object {
		return checkpoint.Object{Kind: "Pod", Namespace: "a", Name: name}
	}
	hook := func(name string) checkpoint.HookedPod {
		return checkpoint.HookedPod{Object: of(name), Pre: 1, Post: []checkpoint.HookCommand{{Container: "main", Command: []string{"thaw"}, Timeout: time.Minute}}}
	}
	ran := func(name, phase string) checkpoint.HookOutcome {
		return checkpoint.HookOutcome{Hook: checkpoint.Hook{Pod: of(name), Phase: phase}}
	}
	store := newBackupBucket(t, []checkpoint.Record{
		{Hooked: []checkpoint.HookedPod{hook("frozen"), hook("thawed"), hook("done")}},
		{HookOutcomes: []checkpoint.HookOutcome{ran("thawed", checkpoint.HookPost)}, Hooks: []checkpoint.HookIntent{
			{Hook: ran("thawed", checkpoint.HookPost).Hook}}},
		{HooksEnded: []checkpoint.HooksEnded{{Pod: of("done"), Attempted: 2, Failed: 1}}},
	})
	exec := &thaw{}
	var log bytes.Buffer
	s := newState(t, store, &log)
	s.Exec = exec
	committed := failBackup(t, s)
	require.Equal(t, []string{"frozen main thaw"}, exec.ran)
	require.Equal(t, &velerov1.HookStatus{HooksAttempted: 6, HooksFailed: 1}, committed.Status.HookStatus)
	_, recorded := store.Bytes(layout.PostHooks("b", "u", 1))
	require.True(t, recorded)

	again := newState(t, store, &log)
	again.Exec, again.Cause = exec, s.Cause
	require.NoError(t, store.Delete(t.Context(), layout.BackupMetadata("b")))
	require.Equal(t, committed.Status.HookStatus, failBackup(t, again).Status.HookStatus, "also after a takeover")
	require.Equal(t, []string{"frozen main thaw"}, exec.ran, "once")
}

// A bucket that refuses writes or reads of the records of post hooks leaves no Pod frozen.
func TestPostHooksRunThoughTheBucketRefuses(t *testing.T) {
	pod := checkpoint.HookedPod{Object: checkpoint.Object{Kind: "Pod", Namespace: "a", Name: "frozen"}, Pre: 1,
		Post: []checkpoint.HookCommand{{Container: "main", Command: []string{"thaw"}, Timeout: time.Minute}}}
	for name, refused := range map[string]func(op memstore.Op, key string) bool{
		"the record":             func(_ memstore.Op, key string) bool { return key == layout.PostHooks("b", "u", 1) },
		"to say that they ended": func(_ memstore.Op, key string) bool { return key == layout.PostHooksEnded("b", "u") },
	} {
		t.Run(name, func(t *testing.T) {
			store := newBackupBucket(t, []checkpoint.Record{{Hooked: []checkpoint.HookedPod{pod}}})
			var log bytes.Buffer
			exec, s := &thaw{}, newState(t, store, &log)
			s.Exec, s.Cause = exec, errors.New("refused")
			store.Inject(func(op memstore.Op, key string) error {
				if refused(op, key) {
					return objectstore.ErrAccess
				}
				return nil
			})
			require.ErrorIs(t, s.Run(t.Context(), finalize.Failure()), objectstore.ErrAccess)
			require.Equal(t, []string{"frozen main thaw"}, exec.ran)
		})
	}
}
