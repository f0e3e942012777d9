//go:build !linux

package node

import (
	"context"
	"errors"
	"io"
	"runtime"
)

// Config is where and how a cluster with a node is started, on Linux.
type Config struct {
	Dir     string
	Log     io.Writer
	Program string
}

var errSystem = errors.New("a node runs on Linux, not on " + runtime.GOOS)

// Up returns an error.
func Up(context.Context, Config) error { return errSystem }

// Down returns an error.
func Down(context.Context, string) error { return errSystem }

// Init returns an error.
func Init(string, int) error { return errSystem }

// Run returns an error.
func Run(context.Context, string, int) error { return errSystem }
