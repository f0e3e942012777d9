package selection

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// CheckPaths checks paths of entries in one volume. Each is relative, as "etc/app.conf", without elements "." and
// "..", and none is at or below another one.
func CheckPaths(paths []string) error {
	if len(paths) == 0 {
		return errors.New("names no path")
	}
	for _, path := range paths {
		if !fs.ValidPath(path) || path == "." || strings.Contains(path, "\x00") {
			return fmt.Errorf("%q is not the path of a file or directory, relative to the volume and without . and ..", path)
		}
	}
	for i, path := range paths {
		for j, other := range paths {
			if i != j && (path == other || strings.HasPrefix(path, other+"/")) {
				return fmt.Errorf("%q is at or below %q, which is named too", path, other)
			}
		}
	}
	return nil
}
