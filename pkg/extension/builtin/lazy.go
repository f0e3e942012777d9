package builtin

import (
	"context"
	"sync"
)

// lazyValue is a value that is made once, by the first get; after a failure the next get retries.
type lazyValue[T any] struct {
	turn  chan struct{} // holds a token while one makes the value or reads it
	build func(context.Context) (T, error)
	made  bool
	value T
}

func newLazy[T any](build func(context.Context) (T, error)) *lazyValue[T] {
	return &lazyValue[T]{turn: make(chan struct{}, 1), build: build}
}

// getValue returns the value. Who waits for another to make it stops waiting when its own ctx ends.
func (l *lazyValue[T]) getValue(ctx context.Context) (value T, err error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	if l.made {
		return l.value, nil
	}
	if value, err = l.build(ctx); err == nil {
		l.value, l.made = value, true
	}
	return value, err
}

// keepLazy returns the lazy value under the key, and puts it there first if need be.
func keepLazy[K comparable, T any](mu *sync.Mutex, values map[K]*lazyValue[T], key K, build func(context.Context) (T, error)) *lazyValue[T] {
	mu.Lock()
	defer mu.Unlock()
	if values[key] == nil {
		values[key] = newLazy(build)
	}
	return values[key]
}
