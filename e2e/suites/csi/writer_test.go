package csi

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec/podexectest"
)

// writer counts in two files of each volume, in one after the other: at any moment a volume has the
// same number in both, or in the first one more.
type writer struct {
	driver  *directorydriver.Driver
	volumes []string
	round   chan struct{} // has one element unless a round is under way or the writer is frozen
}

// write starts a writer, which ends with the test. It has written once when write returns.
func (b *bed) write(t *testing.T, volumes []string) *writer {
	t.Helper()
	w := &writer{driver: b.driver, volumes: volumes, round: make(chan struct{}, 1)}
	require.NoError(t, w.set(1))
	w.round <- struct{}{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var runs sync.WaitGroup
	var failed error
	runs.Go(func() { failed = w.run(ctx) })
	t.Cleanup(func() {
		stop()
		runs.Wait()
		if !errors.Is(failed, directorydriver.ErrNoVolume) { // the namespace may be gone
			require.NoError(t, failed)
		}
	})
	return w
}

func (w *writer) run(ctx context.Context) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for n := 2; ; n++ {
		if w.freeze(ctx) != nil {
			return nil
		}
		if err := w.set(n); err != nil {
			return err
		}
		w.thaw()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// freeze returns when no round is under way, and none begins until thaw.
func (w *writer) freeze(ctx context.Context) error {
	select {
	case <-w.round:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *writer) thaw() { w.round <- struct{}{} }

func (w *writer) set(n int) error {
	for _, name := range []string{"first", "second"} {
		if err := w.mark(name, strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return nil
}

// mark writes a file of every volume.
func (w *writer) mark(name, content string) error {
	for _, v := range w.volumes {
		err := w.driver.Write(v, func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) })
		if err != nil {
			return err
		}
	}
	return nil
}

// live returns the number in a volume.
func (w *writer) live(t *testing.T, volume string) (n int) {
	t.Helper()
	require.NoError(t, w.driver.Write(volume, func(dir string) error { n = number(t, dir, "second"); return nil }))
	return n
}

// number returns the number in a file.
func number(t *testing.T, dir, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	n, err := strconv.Atoi(string(text))
	require.NoError(t, err, "%s/%s is cut within a write", dir, name)
	return n
}

// consistent fails unless what is in a directory was so at one moment, and returns the number.
func consistent(t *testing.T, dir string) int {
	t.Helper()
	first, second := number(t, dir, "first"), number(t, dir, "second")
	require.Contains(t, []int{second, second + 1}, first, dir)
	return second
}

// has reports whether a directory has a file.
func has(t *testing.T, dir, name string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, name))
	if !errors.Is(err, fs.ErrNotExist) {
		require.NoError(t, err)
	}
	return err == nil
}

// applications run commands in Pods: "freeze" keeps a writer from writing and leaves the file
// "frozen" in its volumes, "thaw" leaves "thawed" and lets it go on.
type applications struct {
	mu      sync.Mutex
	writers map[string]*writer // by Pod
}

func (a *applications) register(pod string, w *writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writers == nil {
		a.writers = map[string]*writer{}
	}
	a.writers[pod] = w
}

func (a *applications) run(ctx context.Context, r *podexectest.Request, _, _ io.Writer) error {
	a.mu.Lock()
	w := a.writers[r.Pod]
	a.mu.Unlock()
	if w == nil {
		return &podexectest.ExitError{Code: 1}
	}
	if r.Command[0] == "freeze" {
		return errors.Join(w.freeze(ctx), w.mark("frozen", ""))
	}
	err := w.mark("thawed", "")
	w.thaw()
	return err
}

// goesOn waits until a volume has a larger number.
func (w *writer) goesOn(t *testing.T, volume string, than int) {
	t.Helper()
	require.Eventually(t, func() bool { return w.live(t, volume) > than }, site.Patience, site.Look, "the writer goes on")
}
