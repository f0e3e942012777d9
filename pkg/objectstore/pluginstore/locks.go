package pluginstore

import (
	"context"
	"sync"
)

// Locks lets one writer at a time create an object. The zero value is ready; share one among the
// stores of a process. Safe for concurrent use.
type Locks struct {
	mu   sync.Mutex
	held map[string]*nameLock
}

// nameLock is free when it can be received from.
type nameLock struct {
	free chan struct{}
	uses int // holder and those that wait
}

// acquireName waits for the name until ctx ends; release gives it back.
func (l *Locks) acquireName(ctx context.Context, name string) (release func(), err error) {
	l.mu.Lock()
	k, ok := l.held[name]
	if !ok {
		if l.held == nil {
			l.held = map[string]*nameLock{}
		}
		k = &nameLock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.held[name] = k
	}
	k.uses++
	l.mu.Unlock()
	select {
	case <-k.free:
		return func() {
			k.free <- struct{}{}
			l.dropLock(name, k)
		}, nil
	case <-ctx.Done():
		l.dropLock(name, k)
		return nil, context.Cause(ctx)
	}
}

func (l *Locks) dropLock(name string, k *nameLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.uses--; k.uses == 0 {
		delete(l.held, name)
	}
}
