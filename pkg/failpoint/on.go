//go:build failpoint

package failpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Enabled reports whether this binary can be stopped at its points.
const Enabled = true

// Hit marks the step of that name, such as "backup-runner/reserved", and acts there when a test
// armed it. An order that cannot be read panics: the test is wrong. Safe for concurrent use.
func Hit(name string) {
	dir := os.Getenv("FAILPOINT_DIR")
	if dir == "" {
		return
	}
	path := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	order, mine, err := takeHit(dir, path)
	if err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", name, err)) //nolint:forbidigo // only in builds for tests
	}
	if mine {
		executeOrder(name, order)
	}
}

// HitIn is Hit for a step of code that several services run: the point is service/step, such as
// "deletion/claimed".
func HitIn(service, step string) { Hit(service + "/" + step) }

// takeHit counts one hit and returns the order if it is this hit's to carry out.
func takeHit(dir, path string) (order string, mine bool, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", false, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil // another hit was first
	}
	if err != nil {
		return "", false, err
	}
	order, at, counted := strings.Cut(strings.TrimSpace(string(text)), "@")
	if counted {
		n, err := strconv.Atoi(at)
		if err != nil {
			return "", false, err
		}
		if n > 1 {
			return "", false, replaceContent(path, path, fmt.Sprintf("%s@%d", order, n-1))
		}
	}
	return order, true, errors.Join(replaceContent(path, path+".hit", strconv.Itoa(os.Getpid())), os.Remove(path))
}

// replaceContent makes text the content of the file named to, at once.
func replaceContent(path, to, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", to)
}

func executeOrder(name, order string) {
	switch what, arg, _ := strings.Cut(order, " "); what {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal may take a moment
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "delay":
		d, err := time.ParseDuration(arg)
		if err != nil {
			panic(fmt.Sprintf("failpoint %s: %v", name, err)) //nolint:forbidigo // only in builds for tests
		}
		time.Sleep(d) //nolint:forbidigo // only in builds for tests, which ask for just this
	case "panic":
		panic("failpoint " + name) //nolint:forbidigo // asked for
	default:
		panic(fmt.Sprintf("failpoint %s: unknown order %q", name, order)) //nolint:forbidigo // only in builds for tests
	}
}
