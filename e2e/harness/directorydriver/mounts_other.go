//go:build !linux

package directorydriver

import (
	"errors"
	"os"
	"runtime"
)

var errSystem = errors.New("volumes are mounted on Linux, not on " + runtime.GOOS)

func bindMount(string, string, bool) error { return errSystem }

func removeMount(string) error { return errSystem }

func attachDevice(string) (*os.File, error) { return nil, errSystem }
