//go:build failpoint

package failpoint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
)

func armFailpoint(t *testing.T, name, order string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("FAILPOINT_DIR", dir)
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(order), 0o600))
	return path
}

func TestUnarmedPointDoesNothing(t *testing.T) {
	armFailpoint(t, "a.other", "panic")
	require.NotPanics(t, func() { failpoint.Hit("a/point") })
}

func TestExactlyTheCountedHitActs(t *testing.T) {
	path := armFailpoint(t, "a.point", "panic@3")
	failpoint.Hit("a/point")
	failpoint.Hit("a/point")
	require.NoFileExists(t, path+".hit")
	require.Panics(t, func() { failpoint.Hit("a/point") })
	require.FileExists(t, path+".hit")
	require.NotPanics(t, func() { failpoint.Hit("a/point") })
}

func TestOneOfManyActs(t *testing.T) {
	armFailpoint(t, "a.point", "panic")
	var group sync.WaitGroup
	var mu sync.Mutex
	acted := 0
	for range 50 {
		group.Go(func() {
			defer func() {
				if recover() != nil {
					mu.Lock()
					acted++
					mu.Unlock()
				}
			}()
			failpoint.Hit("a/point")
		})
	}
	group.Wait()
	require.Equal(t, 1, acted)
}

func TestKillEndsTheProcessAndNamesIt(t *testing.T) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		failpoint.Hit("a/point")
		os.Exit(3)
	}
	path := armFailpoint(t, "a.point", "kill")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillEndsTheProcessAndNamesIt$")
	child.Env = append(os.Environ(), "FAILPOINT_CHILD=1")
	err := child.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	status, ok := exit.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal())
	text, err := os.ReadFile(path + ".hit")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(child.Process.Pid), string(text))
}

func TestAStepThatSeveralServicesRunHasAPointForEach(t *testing.T) {
	path := armFailpoint(t, "one.claimed", "panic")
	failpoint.HitIn("other", "claimed")
	require.NoFileExists(t, path+".hit")
	require.Panics(t, func() { failpoint.HitIn("one", "claimed") })
}
