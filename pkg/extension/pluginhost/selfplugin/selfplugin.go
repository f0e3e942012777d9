// Package selfplugin makes the test binary of a package serve as its plugins: its TestMain detects
// by the environment or by its own name that it was started as one.
//
// With the race detector a process needs about a second of CPU time to start, and such tests start
// hundreds. They test the host, so the plugins are then the same tests compiled without it.
package selfplugin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Directory makes a plugin directory, which is removed after the test, in which the test binary has
// these names. Slashes make directories.
func Directory(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	Link(t, dir, names...)
	return dir
}

// Link puts the test binary into a directory under these names.
func Link(t testing.TB, dir string, names ...string) {
	t.Helper()
	binary, err := plain()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(binary, path); err != nil {
			t.Fatal(err)
		}
	}
}

// plain is the path of the test binary without the race detector. Where it has to be compiled, it
// lies beside the running one, whose directory the go command removes.
var plain = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil || !raceDetector {
		return self, err
	}
	binary := self + ".plain"
	// Without a context, as it serves all tests of the process. The flags are those of `make
	// build`, whose packages need not be compiled again.
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -gcflags=all=-dwarf=false")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the tests without the race detector: %w\n%s", err, out)
	}
	return binary, nil
})
