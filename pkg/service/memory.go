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

// CollectGarbageAt makes the garbage collector begin when the heap has grown by that percentage over
// what lives, which costs CPU and saves memory. It is for main functions. A percentage in GOGC, which
// the runtime read when the process started, stands.
func CollectGarbageAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
