// Package private makes and checks directories and files that only the user of this process may
// change or read: on a machine with several users, a directory that another user made first, or can
// rename, is theirs.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNotOurs means that another user owns the path, or may change what is in it.
var ErrNotOurs = errors.New("not private to this user")

// worldWritable is the permission bit with which every user may add and rename entries of a
// directory.
const worldWritable = 0o002

// MakeDir creates path and the parents that are missing with mode 0700, and refuses with ErrNotOurs
// a directory that belongs to another user than this one and root, that this user left writable for
// everyone, or that lies below a directory that everyone may write to, such as /tmp, in one of
// another user. A directory that root left writable for everyone is accepted: volumes of a Pod look
// like that.
func MakeDir(path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return err
	}
	return checkPath(absolute, os.Geteuid())
}

// checkPath examines the path as it was given and as links resolve it.
func checkPath(path string, uid int) error {
	if err := checkChain(path, uid); err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil || resolved == path {
		return err
	}
	return checkChain(resolved, uid)
}

// checkChain goes from the root directory to path. Who owns a parent counts only below a directory
// that everyone may write to: elsewhere its owner was chosen by the administrator of the machine.
func checkChain(path string, uid int) error {
	shared, at := false, string(filepath.Separator)
	for _, name := range append([]string{""}, strings.Split(strings.Trim(path, at), at)...) {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		owner, last := ownerOf(info), at == path
		switch {
		case (shared || last) && owner != 0 && owner != uid:
			return fmt.Errorf("%s: %w: user %d owns it, and this is user %d", at, ErrNotOurs, owner, uid)
		case !info.IsDir(): // a link, which the resolved path answers for
		case last && owner != 0 && info.Mode()&worldWritable != 0:
			return fmt.Errorf("%s: %w: everyone may write to it, use chmod 0700", at, ErrNotOurs)
		default:
			shared = shared || info.Mode()&worldWritable != 0
		}
	}
	return nil
}

// ownerOf is the user id of a file's owner; -1, which no user has, where the system does not report
// it.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// CheckOwner refuses, with ErrNotOurs, a path that belongs to another user than this one, root
// included.
func CheckOwner(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if owner := ownerOf(info); owner != os.Geteuid() {
		return fmt.Errorf("%s: %w: user %d owns it, and this is user %d", path, ErrNotOurs, owner, os.Geteuid())
	}
	return nil
}
