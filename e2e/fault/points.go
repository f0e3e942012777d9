package fault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What an armed point does with the process that reaches it.
const (
	Kill = "kill"
	Stop = "stop"
)

// look is how often a condition is looked at.
const look = 50 * time.Millisecond

// pointDir is the directory that package failpoint of every process reads.
type pointDir struct{ dir string }

func (p pointDir) pointPath(point string) string {
	return filepath.Join(p.dir, strings.ReplaceAll(point, "/", "."))
}

// armPoint makes the nth hit of a point act; 0 and 1 are the first.
func (p pointDir) armPoint(point, order string, nth int) error {
	if nth > 1 {
		order += "@" + strconv.Itoa(nth)
	}
	path := p.pointPath(point)
	if err := os.WriteFile(path+".arming", []byte(order), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".arming", path)
}

// readHitProcess returns the ID of the process that hit a failpoint; 0 before the hit.
func (p pointDir) readHitProcess(point string) (pid int, err error) {
	text, err := os.ReadFile(p.pointPath(point) + ".hit")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// isArmed reports whether a point has an order.
func (p pointDir) isArmed(point string) (bool, error) {
	_, err := os.Stat(p.pointPath(point))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// forgetPoint removes the order and the hit of one point.
func (p pointDir) forgetPoint(point string) error {
	path := p.pointPath(point)
	var errs []error
	for _, file := range []string{path, path + ".hit"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// clearPoints removes every order and hit.
func (p pointDir) clearPoints() error {
	entries, err := os.ReadDir(p.dir)
	for _, entry := range entries {
		if entry.Name() != "lock" {
			err = errors.Join(err, os.Remove(filepath.Join(p.dir, entry.Name())))
		}
	}
	return err
}

// pollUntil looks repeatedly until done, an error, or the end of patience, which names what was waited
// for.
func pollUntil(ctx context.Context, patience time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", what, patience, ctx.Err())
		case <-ticker.C:
		}
	}
}
