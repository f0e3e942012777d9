package service

import (
	"os"
	"runtime/debug"
)

// LimitMemory makes the garbage collector work harder before the process outgrows that many bytes.
// It is for main functions. A limit in GOMEMLIMIT, which the runtime read when the process started,
// stands.
func LimitMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}
