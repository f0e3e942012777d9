package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/service/caller"
	"github.com/holdfast-io/holdfast/pkg/service/private"
)

// ErrNoHome means that there is no home directory of the user to keep notes in.
var ErrNoHome = errors.New("no home directory")

// notesDir is the directory in which `holdfast up` notes, for each of its addresses, the data directory
// that it serves: only the user can read and write there. A note holds no secret.
func notesDir(home string) string { return filepath.Join(home, ".config", "holdfast", "up") }

// notePath is the file of an address; a colon is no good part of a file's name everywhere.
func notePath(home, address string) string {
	return filepath.Join(notesDir(home), strings.ReplaceAll(address, ":", "_"))
}

// RecordServer notes that the server of dataDir, an absolute path, listens on the addresses. Notes of
// servers that ended without ForgetServer go. An error wraps private.ErrNotOurs where the home directory
// is another user's.
func RecordServer(home, dataDir string, addresses []string) error {
	if home == "" {
		return ErrNoHome
	}
	if err := private.CheckOwner(home); err != nil {
		return err
	}
	if err := private.MakeDir(notesDir(home)); err != nil {
		return err
	}
	errs := []error{pruneNotes(home, dataDir)}
	for _, address := range addresses {
		errs = append(errs, private.WriteFile(notePath(home, address), []byte(dataDir+"\n")))
	}
	return errors.Join(errs...)
}

// ForgetServer removes the notes of a server that ended. Those that another server has replaced stay.
func ForgetServer(home, dataDir string) error {
	if home == "" {
		return nil
	}
	return pruneNotes(home, dataDir)
}

// pruneNotes removes the notes about dataDir, and those about data directories that hold no token any
// more.
func pruneNotes(home, dataDir string) error {
	entries, err := os.ReadDir(notesDir(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(notesDir(home), entry.Name())
		dir, err := readNote(path)
		if err != nil {
			continue // no note, or just removed
		}
		if _, err := os.Lstat(caller.TokenPath(dir)); dir == dataDir || errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// DataDir is the data directory of the server that listens on address; empty when none was noted.
func DataDir(home, address string) (string, error) {
	if home == "" {
		return "", nil
	}
	dir, err := readNote(notePath(home, address))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return dir, err
}

func readNote(path string) (string, error) {
	data, err := private.ReadFile(path)
	if err != nil {
		return "", err
	}
	dir := strings.TrimSuffix(string(data), "\n")
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%s: %q is no absolute path", path, dir)
	}
	return dir, nil
}
