package up

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/pkg/service/private"
)

// ErrInUse means that another process serves from the same data directory.
var ErrInUse = errors.New("data directory is in use by another `holdfast up`")

// bucket is the directory of the default location's bucket.
const bucket = "backups"

// dataDir is a locked data directory.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir creates what is missing and locks the directory; one that another user owns or may
// change is refused. The lock is the kernel's: it ends with the process, however that ends.
func openDataDir(path string) (*dataDir, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	d := &dataDir{path: absolute}
	if err := private.MakeDir(absolute); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	for _, sub := range []string{filepath.Join(d.objectsDir(), bucket), d.natsDir()} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, fmt.Errorf("--data-dir: %w", err)
		}
	}
	d.lock, err = os.OpenFile(filepath.Join(absolute, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		closeErr := d.lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("--data-dir %s: %w", absolute, ErrInUse)
		}
		return nil, errors.Join(err, closeErr)
	}
	return d, nil
}

func (d *dataDir) objectsDir() string { return filepath.Join(d.path, "objects") }

func (d *dataDir) natsDir() string { return filepath.Join(d.path, "nats") }

// workDir is the work directory of one service; it is the service's to create.
func (d *dataDir) workDir(label string) string { return filepath.Join(d.path, "work", label) }

// close unlocks the directory.
func (d *dataDir) close() error { return d.lock.Close() }
