package assembly

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

const (
	// fetchers is how many sidecars are fetched at once.
	fetchers = 8
	// maxAhead is how many fetched sidecars wait in the work dir for the merge to come to them.
	maxAhead = 32
)

// sidecarPrefetch fetches the sidecars of a plan into the work dir, in their order and before they are asked
// for, so that a merge does not wait for one answer of the store after the other.
type sidecarPrefetch struct {
	store Getter
	parts []PartRef
	dir   string
	ctx   context.Context //nolint:containedctx // of the fetches; its cause is why one failed
	end   context.CancelCauseFunc
	group sync.WaitGroup
	room  chan struct{}         // a place for each that was fetched, or is being, and not taken
	ready []chan fetchedSidecar // by part
}

// fetchedSidecar is a sidecar in the work dir, or why it is not there.
type fetchedSidecar struct {
	file *os.File
	err  error
}

// fetchPanicError is what a fetch panicked with.
type fetchPanicError struct{ value any }

// Error implements error.
func (p *fetchPanicError) Error() string { return fmt.Sprint(p.value) }

// fetchAhead begins to fetch. Close ends it.
func fetchAhead(ctx context.Context, store Getter, parts []PartRef, dir string) *sidecarPrefetch {
	a := &sidecarPrefetch{store: store, parts: parts, dir: dir, room: make(chan struct{}, maxAhead), ready: make([]chan fetchedSidecar, len(parts))}
	a.ctx, a.end = context.WithCancelCause(ctx)
	for i := range a.ready {
		a.ready[i] = make(chan fetchedSidecar, 1)
	}
	a.group.Go(a.startFetches)
	return a
}

// startFetches starts one fetch after the other, while there is room.
func (a *sidecarPrefetch) startFetches() {
	slots := make(chan struct{}, fetchers)
	for i := range a.parts {
		if !a.awaitPlace(a.room) || !a.awaitPlace(slots) {
			a.ready[i] <- fetchedSidecar{err: context.Cause(a.ctx)}
			continue
		}
		a.group.Go(func() {
			a.ready[i] <- a.fetchSidecar(a.parts[i])
			<-slots
		})
	}
}

// awaitPlace waits for a place; false once the fetches have ended.
func (a *sidecarPrefetch) awaitPlace(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return a.ctx.Err() == nil
	case <-a.ctx.Done():
		return false
	}
}

// fetchSidecar copies one sidecar. The first that fails ends the others: the merge fails.
func (a *sidecarPrefetch) fetchSidecar(p PartRef) (f fetchedSidecar) {
	defer func() {
		if v := recover(); v != nil {
			f.err = &fetchPanicError{v}
		}
		if f.err != nil {
			a.end(f.err)
		}
	}()
	f.file, f.err = copySidecar(a.ctx, a.store, p, a.dir)
	return f
}

// takeSidecar returns the i-th sidecar, once; the caller closes it. The error is that of the fetch that
// failed first; it panics where that did.
func (a *sidecarPrefetch) takeSidecar(i int) (*os.File, error) {
	f := <-a.ready[i]
	close(a.ready[i])
	if f.err == nil {
		<-a.room
		return f.file, nil
	}
	err := context.Cause(a.ctx)
	var panicked *fetchPanicError
	if errors.As(err, &panicked) {
		panic(panicked.value) //nolint:forbidigo // it is another goroutine's, which nothing could survive
	}
	return nil, err
}

// close ends what is under way and drops what was not taken.
func (a *sidecarPrefetch) close() {
	a.end(context.Canceled)
	a.group.Wait()
	for _, ready := range a.ready {
		if f := <-ready; f.file != nil {
			_ = f.file.Close() // it was only read
		}
	}
}
