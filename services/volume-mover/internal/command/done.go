package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/request"
)

// doneDir is the directory of done files in a volume (Velero 1.18).
const doneDir = ".velero"

// Modes of the done file and its directory. Any user of the volume reads the file, and removes it: Pods that do
// not run as root could not, and some programs do not start beside a directory that they do not know.
const (
	doneDirMode  = fs.FileMode(0o777)
	doneFileMode = fs.FileMode(0o644)
)

// unfinished ends the name of a done file that is being made.
const unfinished = ".tmp"

// markDone makes the done file of a restore, whose data is durable by then. There is none while content is
// missing, so that the Pod which waits for it does not start without.
func markDone(r *request.Restore, result *outcome.Result) {
	restored := result.Phase == outcome.Completed || result.Phase == outcome.PartiallyFailed && !result.LacksContent()
	if r.DoneFile == "" || !restored {
		return
	}
	if err := writeDoneFile(r.Target, r.DoneFile); err != nil {
		result.Phase, result.Message = outcome.Failed, fmt.Sprintf("the done file, for which the Pod waits, cannot be written: %v", err)
	}
}

// writeDoneFile replaces the directory of done files by one with this file. The time of the volume's own
// directory stays. The file gets its name last: the Pod removes the directory as soon as it sees the file.
func writeDoneFile(volume, name string) (err error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := errors.Join(root.RemoveAll(doneDir), root.Mkdir(doneDir, doneDirMode), root.Chmod(doneDir, doneDirMode)); err != nil {
		return err
	}
	path := filepath.Join(doneDir, name)
	f, err := root.OpenFile(path+unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, doneFileMode)
	if err != nil {
		return err
	}
	err = errors.Join(f.Chmod(doneFileMode), f.Sync(), f.Close(), root.Chtimes(".", time.Time{}, info.ModTime()), syncDirectory(root, "."))
	if err != nil {
		return err
	}
	return errors.Join(root.Rename(path+unfinished, path), syncDirectory(root, doneDir))
}

// syncDirectory makes a directory durable. One that is gone was removed by the Pod, which has seen the file.
func syncDirectory(root *os.Root, path string) error {
	f, err := root.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
