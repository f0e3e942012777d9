package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
)

// waitBed is an init container.
type waitBed struct {
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
	log   bytes.Buffer
	code  chan int
}

func newWaitBed(t *testing.T, volumes ...string) *waitBed {
	b := &waitBed{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), code: make(chan int, 1)}
	for _, v := range volumes {
		require.NoError(t, os.Mkdir(filepath.Join(b.dir, v), 0o755))
	}
	return b
}

func (b *waitBed) start(ctx context.Context, args ...string) {
	m := &mover{clock: b.clock, stderr: &b.log}
	c := m.newWaitCommand()
	c.SetArgs(append(args, "--dir", b.dir))
	c.SetContext(ctx)
	c.SetErr(&b.log)
	c.SilenceUsage = true
	go func() {
		if err := c.Execute(); err != nil {
			m.exit = ExitUsage
		}
		b.code <- m.exit
	}()
}

// look lets it look once more.
func (b *waitBed) look() {
	b.t.Helper()
	require.Eventually(b.t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	b.clock.Step(waitInterval)
}

func (b *waitBed) finish(volume, name string) {
	b.t.Helper()
	require.NoError(b.t, writeDoneFile(filepath.Join(b.dir, volume), name))
}

func TestWaitWaitsForEachVolume(t *testing.T) {
	b := newWaitBed(t, "data")
	elsewhere := t.TempDir() // a volume may be a link to one
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(b.dir, "logs")))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "no-volume"), nil, 0o600))
	old := time.Unix(1_600_000_000, 0)
	require.NoError(t, os.Chtimes(elsewhere, old, old))
	b.finish("data", "another-uid")
	b.start(t.Context(), "uid")
	b.look()
	b.finish("data", "uid")
	b.look()
	require.Empty(t, b.code)
	require.DirExists(t, filepath.Join(b.dir, "data", doneDir), "one stays until all are there")
	b.finish("logs", "uid")
	b.look()
	require.Equal(t, 0, <-b.code, &b.log)
	require.NoDirExists(t, filepath.Join(b.dir, "data", doneDir))
	require.NoDirExists(t, filepath.Join(elsewhere, doneDir))
	info, err := os.Stat(elsewhere)
	require.NoError(t, err)
	require.True(t, old.Equal(info.ModTime()), "the volume's own directory has its time: %s", info.ModTime())
}

// TestTheLastPodRemovesTheMarkOfASharedVolume: one that runs twice counts once, and one that comes later finds its data.
func TestTheLastPodRemovesTheMarkOfASharedVolume(t *testing.T) {
	b := newWaitBed(t, "data", "shared")
	b.finish("data", "uid")
	b.finish("shared", "uid")
	mark := filepath.Join(b.dir, "shared", doneDir)
	b.start(t.Context(), "uid", "--shared", "shared=3", "--pod", "web-0")
	require.Equal(t, 0, <-b.code, &b.log)
	require.NoDirExists(t, filepath.Join(b.dir, "data", doneDir))
	b.finish("data", "uid")
	for _, pod := range []string{"web-0", "web-1"} {
		b.start(t.Context(), "uid", "--shared", "shared=3,data=1", "--pod", pod)
		require.Equal(t, 0, <-b.code, &b.log)
		require.FileExists(t, filepath.Join(mark, "uid"), pod)
		b.finish("data", "uid")
	}
	b.start(t.Context(), "uid", "--shared", "shared=3", "--pod", "web-2")
	require.Equal(t, 0, <-b.code, &b.log)
	require.NoDirExists(t, mark)
	require.Empty(t, b.log.String())
}

// TestAPodThatIsNotTheLastLeavesNothing: the last one may be faster.
func TestAPodThatIsNotTheLastLeavesNothing(t *testing.T) {
	b := newWaitBed(t, "shared")
	w := waiter{name: "uid", dir: b.dir, pod: "web-0", shared: map[string]int{"shared": 2}}
	m := &mover{clock: b.clock, stderr: &b.log}
	m.removeMarks(w, []string{"shared"})
	require.NoDirExists(t, filepath.Join(b.dir, "shared", doneDir))
	require.Empty(t, b.log.String())
}

// TestWaitDoesNotWaitForWhatItCannotSee: permission denied is one such error, which root does not get.
func TestWaitDoesNotWaitForWhatItCannotSee(t *testing.T) {
	b := newWaitBed(t, "data")
	mark := filepath.Join(b.dir, "data", doneDir)
	require.NoError(t, os.Symlink(mark, mark))
	b.start(t.Context(), "uid")
	require.Equal(t, ExitFailed, <-b.code)
	require.Contains(t, b.log.String(), "volume data: user")
	require.Contains(t, b.log.String(), "cannot see whether its data is there")
}

// Most Pods do not run as root, as whom a mover makes the done file. A broker that finds .velero beside its
// partitions does not start.
func TestAnyUserOfTheVolumeRemovesTheDoneFile(t *testing.T) {
	b := newWaitBed(t, "data")
	volume := filepath.Join(b.dir, "data")
	b.finish("data", "uid")
	info, err := os.Stat(filepath.Join(volume, doneDir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), info.Mode().Perm())
	if os.Getuid() != 0 { // only root can act as another user
		return
	}
	const user = 1001
	require.NoError(t, errors.Join(os.Chmod(filepath.Dir(b.dir), 0o755), os.Chown(volume, user, user)))
	remove := exec.CommandContext(t.Context(), "rm", "-r", filepath.Join(volume, doneDir))
	remove.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := remove.CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestWaitWithoutVolumesIsAnError(t *testing.T) {
	b := newWaitBed(t)
	b.start(t.Context(), "uid")
	require.Equal(t, ExitFailed, <-b.code)
	b.start(t.Context(), "../uid")
	require.Equal(t, ExitUsage, <-b.code)
}

func TestWaitEndsWhenItIsTold(t *testing.T) {
	b := newWaitBed(t, "data")
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "data", doneDir), nil, 0o600)) // data of that name is not the mark
	ctx, cancel := context.WithCancelCause(t.Context())
	b.start(ctx, "uid")
	b.look()
	cancel(errors.New("told to stop"))
	require.Equal(t, ExitFailed, <-b.code)
	require.Contains(t, b.log.String(), `data of ["data"] is not there: told to stop`)
}

// The sandbox of a Pod is made anew, as by a reboot of its node: the data is in use by then, and no done
// file comes any more.
func TestWaitWaitsOnceInALifeOfAPod(t *testing.T) {
	b, state := newWaitBed(t, "data"), t.TempDir()
	b.finish("data", "uid")
	b.start(t.Context(), "uid", "--state", state)
	require.Equal(t, 0, <-b.code, &b.log)
	require.NoDirExists(t, filepath.Join(b.dir, "data", doneDir))
	b.start(t.Context(), "uid", "--state", state)
	require.Equal(t, 0, <-b.code, &b.log)

	b.start(t.Context(), "another", "--state", state)
	b.look()
	require.Empty(t, b.code, "another restore has data of its own")
	require.NoError(t, os.RemoveAll(state)) // before, for the look may be late
	b.finish("data", "another")
	b.look()
	require.Equal(t, 0, <-b.code, "the Pod starts although that cannot be kept")
	require.Contains(t, b.log.String(), "would wait again")
}
