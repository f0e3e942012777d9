package rawlist

import (
	"context"
	"io"
	"net/http"
)

// pageRequest is a page on its way.
type pageRequest struct {
	ctx    context.Context //nolint:containedctx // the request's own, see cancel
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when resp or err is set
	resp   *http.Response
	err    error
}

// startRequest sends a request; the caller waits for done and calls end.
func (c *Client) startRequest(ctx context.Context, address, accept string) *pageRequest {
	ctx, cancel := context.WithCancelCause(ctx)
	rq := &pageRequest{ctx: ctx, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(rq.done)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			rq.err = err
			return
		}
		req.Header.Set("Accept", accept)
		// Compression costs the server more CPU than the bytes are worth.
		req.Header.Set("Accept-Encoding", "identity")
		rq.resp, rq.err = c.http.Do(req) //nolint:bodyclose // end closes it
	}()
	return rq
}

// endRequest releases the request, in whatever state it is. What is left of a short answer is read, so
// that the connection can be used again.
func (rq *pageRequest) endRequest() {
	select {
	case <-rq.done:
	default:
		rq.cancel(nil)
		<-rq.done
	}
	if rq.err == nil {
		if rq.resp.ContentLength >= 0 && rq.resp.ContentLength < drainBytes {
			_, _ = io.CopyN(io.Discard, rq.resp.Body, drainBytes) // best effort: a connection more is no error
		}
		_ = rq.resp.Body.Close()
	}
	rq.cancel(nil)
}

const drainBytes = 64 << 10
