package private

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// maxFile bounds what ReadFile reads, in bytes.
const maxFile = 64 << 10

// forOthers are the permission bits of everyone but the owner.
const forOthers = 0o077

// WriteFile makes or replaces a file that only this user may read. It is never there in part, and
// never readable for others.
func WriteFile(path string, data []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-") // exclusive, mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// ReadFile reads a small file that this user owns and no other user may read; anything else is
// ErrNotOurs. A link is not followed. Absence satisfies errors.Is with fs.ErrNotExist.
func ReadFile(path string) ([]byte, error) { return readFile(path, os.Geteuid()) }

func readFile(path string, uid int) (_ []byte, err error) {
	// O_NONBLOCK: a named pipe in its place must not hold up the caller.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s: %w: it is a link", path, ErrNotOurs)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch owner := ownerOf(info); {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w: not a regular file", path, ErrNotOurs)
	case owner != uid:
		return nil, fmt.Errorf("%s: %w: user %d owns it, and this is user %d", path, ErrNotOurs, owner, uid)
	case info.Mode()&forOthers != 0:
		return nil, fmt.Errorf("%s: %w: its mode is %04o, use chmod 0600", path, ErrNotOurs, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxFile)
	}
	return data, err
}
