package fault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// collecting is the step at which a backup has reserved its name and stored nothing else.
const collecting = "backup-runner/discovered"

// beginSuspended takes the directory of a backup away while it runs, and brings it back when the
// backup is suspended.
func beginSuspended(ctx context.Context, b *Bed, name string) error {
	if err := b.points.armPoint(collecting, Stop, 1); err != nil {
		return err
	}
	if err := beginBackup(ctx, b, name); err != nil {
		return err
	}
	m, err := b.awaitReached(ctx, collecting)
	if err != nil {
		return err
	}
	dir := filepath.Join(b.bucket.path, "backups", name)
	away := filepath.Join(b.dir, name)
	if err := errors.Join(os.Rename(dir, away), os.Symlink(name, dir), m.Signal(syscall.SIGCONT), b.points.forgetPoint(collecting)); err != nil {
		return err
	}
	backup := &velerov1.Backup{}
	err = pollUntil(ctx, patience, "backup "+name+" is suspended", func() (bool, error) {
		_, err := b.apiClient.getObject(ctx, name, backup)
		_, marked := mark.SuspensionOf(backup)
		return marked, err
	})
	return errors.Join(err, os.Remove(dir), os.Rename(away, dir))
}
