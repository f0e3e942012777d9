package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-io/holdfast/pkg/service/private"
)

// lockName is the file that marks the work directory of one process; it is locked as long as the
// process runs.
const lockName = ".holdfast-work"

// workDir is the directory of one process below --work-dir, which several may share.
type workDir struct {
	path string
	lock *os.File
}

// newWorkDir makes root where it is missing and refuses one of another user, see [private.MakeDir].
// It removes what processes of this service that have died left below root, and makes the directory
// of this one. It gets its name when it is locked, so that another process that starts never finds
// it unlocked.
func newWorkDir(root, service, instance string) (_ *workDir, err error) {
	if err := private.MakeDir(root); err != nil {
		return nil, err
	}
	if err := removeDead(root, service); err != nil {
		return nil, fmt.Errorf("remove what a dead process left: %w", err)
	}
	fresh, err := os.MkdirTemp(root, ".new-")
	if err != nil {
		return nil, err
	}
	d := &workDir{path: filepath.Join(root, instance)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(), os.RemoveAll(fresh))
		}
	}()
	if d.lock, err = os.OpenFile(filepath.Join(fresh, lockName), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock %s: %w", fresh, err)
	}
	return d, os.Rename(fresh, d.path)
}

// removeDead removes the marked directories below root that no process holds.
func removeDead(root, service string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.IsDir() && strings.HasPrefix(entry.Name(), service+"-") {
			errs = append(errs, removeUnlocked(filepath.Join(root, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

func removeUnlocked(dir string) (err error) {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // not a directory of ours, or just removed
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil // its process runs
		}
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// close removes the directory and lets go of it.
func (d *workDir) close() error {
	if d == nil || d.lock == nil {
		return nil
	}
	err := errors.Join(os.RemoveAll(d.path), d.lock.Close())
	d.lock = nil
	return err
}
