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
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// volumeWriter counts in two files of each volume, in one after the other: at any moment a volume has the
// same number in both, or in the first one more.
type volumeWriter struct {
	driver  *directorydriver.Driver
	volumes []string
	round   chan struct{} // has one element unless a round is under way or the writer is frozen
}

// startWriter starts a writer, which ends with the test. It has written once when write returns.
func (b *bed) startWriter(t *testing.T, volumes []string) *volumeWriter {
	t.Helper()
	w := &volumeWriter{driver: b.driver, volumes: volumes, round: make(chan struct{}, 1)}
	require.NoError(t, w.setNumber(1))
	w.round <- struct{}{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var runs sync.WaitGroup
	var failed error
	runs.Go(func() { failed = w.runWriter(ctx) })
	t.Cleanup(func() {
		stop()
		runs.Wait()
		if !errors.Is(failed, directorydriver.ErrNoVolume) { // the namespace may be gone
			require.NoError(t, failed)
		}
	})
	return w
}

func (w *volumeWriter) runWriter(ctx context.Context) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for n := 2; ; n++ {
		if w.freezeWriter(ctx) != nil {
			return nil
		}
		if err := w.setNumber(n); err != nil {
			return err
		}
		w.thawWriter()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// freezeWriter returns when no round is under way, and none begins until thaw.
func (w *volumeWriter) freezeWriter(ctx context.Context) error {
	select {
	case <-w.round:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *volumeWriter) thawWriter() { w.round <- struct{}{} }

func (w *volumeWriter) setNumber(n int) error {
	for _, name := range []string{"first", "second"} {
		if err := w.markVolumes(name, strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return nil
}

// markVolumes writes a file of every volume.
func (w *volumeWriter) markVolumes(name, content string) error {
	for _, v := range w.volumes {
		err := w.driver.Write(v, func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600) })
		if err != nil {
			return err
		}
	}
	return nil
}

// currentNumber returns the number in a volume.
func (w *volumeWriter) currentNumber(t *testing.T, volume string) (n int) {
	t.Helper()
	require.NoError(t, w.driver.Write(volume, func(dir string) error { n = numberInFile(t, dir, "second"); return nil }))
	return n
}

// numberInFile returns the number in a file.
func numberInFile(t *testing.T, dir, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	n, err := strconv.Atoi(string(text))
	require.NoError(t, err, "%s/%s is cut within a write", dir, name)
	return n
}

// requireConsistent fails unless what is in a directory was so at one moment, and returns the number.
func requireConsistent(t *testing.T, dir string) int {
	t.Helper()
	first, second := numberInFile(t, dir, "first"), numberInFile(t, dir, "second")
	require.Contains(t, []int{second, second + 1}, first, dir)
	return second
}

// hasFile reports whether a directory has a file.
func hasFile(t *testing.T, dir, name string) bool {
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
	writers map[string]*volumeWriter // by Pod
}

func (a *applications) registerWriter(pod string, w *volumeWriter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writers == nil {
		a.writers = map[string]*volumeWriter{}
	}
	a.writers[pod] = w
}

func (a *applications) runCommand(ctx context.Context, r *kubetest.ExecRequest, _, _ io.Writer) error {
	a.mu.Lock()
	w := a.writers[r.Pod]
	a.mu.Unlock()
	if w == nil {
		return &kubetest.ExecExitError{Code: 1}
	}
	if r.Command[0] == "freeze" {
		return errors.Join(w.freezeWriter(ctx), w.markVolumes("frozen", ""))
	}
	err := w.markVolumes("thawed", "")
	w.thawWriter()
	return err
}

// awaitLargerNumber waits until a volume has a larger number.
func (w *volumeWriter) awaitLargerNumber(t *testing.T, volume string, than int) {
	t.Helper()
	require.Eventually(t, func() bool { return w.currentNumber(t, volume) > than }, site.Patience, site.Look, "the writer goes on")
}
