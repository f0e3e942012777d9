package step

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/errgroup"
)

// panicked is what a call of Each panicked with.
type panicked struct {
	value any
	stack []byte
}

// errPanicked ends the context of the calls beside the one that panicked; it is never returned.
var errPanicked = errors.New("a call panicked")

// String returns the value and where it came from.
func (p *panicked) String() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// Each calls fn with every number below n, at most limit at once, and returns the first error,
// which ends the context of the others, as a panic does. The first panic of a call becomes one of
// the caller's, who may survive it.
func Each(ctx context.Context, limit, n int, fn func(ctx context.Context, i int) error) error {
	var mu sync.Mutex
	var first *panicked
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = &panicked{value: v, stack: debug.Stack()}
					}
					err = errPanicked
				}
			}()
			return fn(ctx, i)
		})
	}
	err := group.Wait()
	if first != nil {
		panic(first) //nolint:forbidigo // it is another goroutine's, which nothing could survive
	}
	return err
}
