package service

import (
	"math"
	"os"
	"runtime/debug"
	"sync"
)

// LimitMemory makes the garbage collector work harder before the process outgrows that many bytes.
// It is for main functions. A limit in GOMEMLIMIT, which the runtime read when the process started,
// stands.
func LimitMemory(bytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(bytes)
	}
}

// memoryLimitMu guards changes of the limit.
var memoryLimitMu sync.Mutex

// RaiseMemoryLimit raises the limit of LimitMemory by that many bytes, for work whose size became
// known, until lower is called. A limit in GOMEMLIMIT stands.
func RaiseMemoryLimit(bytes int64) (lower func()) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	change := func(bytes int64) {
		memoryLimitMu.Lock()
		defer memoryLimitMu.Unlock()
		if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 { // else there is none
			debug.SetMemoryLimit(limit + bytes)
		}
	}
	change(bytes)
	return sync.OnceFunc(func() { change(-bytes) })
}

// CollectGarbageAt makes the garbage collector begin when the heap has grown by that percentage over
// what lives, which costs CPU and saves memory. It is for main functions. A percentage in GOGC, which
// the runtime read when the process started, stands.
func CollectGarbageAt(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
