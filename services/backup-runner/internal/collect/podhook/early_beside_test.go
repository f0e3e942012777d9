package podhook_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/exec"

	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/history"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/podhook"
)

// commands runs commands by a function.
type commands func(cmd *podexec.Command) error

func (c commands) Run(_ context.Context, cmd *podexec.Command) (podexec.Output, error) {
	return podexec.Output{}, c(cmd)
}

// A post hook that did not run early since the container was not reached runs in its turn, or with the
// next early ones; one that failed does not run again.
func TestAnEarlyPostHookThatDidNotRunIsStillOwed(t *testing.T) {
	exited := exec.CodeExitError{Err: errors.New("exit code 3"), Code: 3}
	for name, tc := range map[string]struct {
		failure error
		owed    bool
		failed  int // of the outcomes
	}{
		"not reached": {errors.New("dial: connection refused"), true, 0},
		"exit code":   {exited, false, 1},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(name, again), func(t *testing.T) {
				b, thaws := &bed{}, 0
				cfg := b.hookConfig(t, &history.Hooks{})
				cfg.Exec = commands(func(cmd *podexec.Command) error {
					if cmd.Args[0] != "thaw" {
						return nil
					}
					thaws++
					if thaws > 1 {
						return nil
					}
					return tc.failure
				})
				early := func() { podhook.RunEarly(t.Context(), cfg, func(context.Context) {}) }
				r := podhook.New(cfg)
				p := r.Of(newPod(t))
				require.NoError(t, r.Pre(t.Context(), p))
				early()
				require.Equal(t, tc.owed, len(cfg.Opened.Pods()) == 1)
				if again {
					early()
					require.Empty(t, cfg.Opened.Pods())
				}
				require.NoError(t, r.Post(t.Context(), p))
				require.Equal(t, map[bool]int{true: 2, false: 1}[tc.owed], thaws)
				require.Empty(t, cfg.Opened.Pods())
				failed := 0
				for _, out := range b.outcomes {
					if out.Error != "" {
						failed++
					}
				}
				require.Equal(t, tc.failed, failed)
			})
		}
	}
}

// Pods whose pre hooks take long keep no other Pod frozen, and their own post hooks do not run once
// the backup is another holder's.
func TestALongPreHookKeepsNoOtherPodFrozen(t *testing.T) {
	const long = 9 // more than run at once
	b := &bed{}
	cfg := b.hookConfig(t, &history.Hooks{})
	var lost atomic.Bool
	cfg.Confirm = func(context.Context) error {
		if lost.Load() {
			return errors.New("lost")
		}
		return nil
	}
	began, held, noted := make(chan struct{}, long), make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	thawed := map[string]int{}
	cfg.Exec = commands(func(cmd *podexec.Command) error {
		switch {
		case cmd.Args[0] == "flush" && cmd.Pod != "z":
			began <- struct{}{}
			<-held
		case cmd.Args[0] == "thaw":
			mu.Lock()
			defer mu.Unlock()
			thawed[cmd.Pod]++
		case cmd.Args[0] == "note":
			close(noted)
		}
		return nil
	})
	r := podhook.New(cfg)
	require.NoError(t, r.Pre(t.Context(), r.Of(podOf(t, "z"))))
	var beside sync.WaitGroup
	for i := range long {
		p := r.Of(podOf(t, fmt.Sprint("p", i)))
		beside.Go(func() { _ = r.Pre(t.Context(), p) })
	}
	for range long {
		<-began
	}
	beside.Go(func() { podhook.RunEarly(t.Context(), cfg, func(context.Context) {}) })
	<-noted
	lost.Store(true)
	close(held)
	beside.Wait()
	require.Equal(t, map[string]int{"z": 1}, thawed)
}
