package messaging

import (
	"context"
	"sync"
)

// connectionLine is the connection as pulls see it: each reconnect begins another, and what waits on the one
// before waits without success, because the server forgot it.
type connectionLine struct {
	base context.Context //nolint:containedctx // only to make contexts without a deadline
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // ends with the connection, not with a call
	end  context.CancelFunc
}

func newLine(ctx context.Context) *connectionLine {
	l := &connectionLine{base: context.WithoutCancel(ctx)}
	l.ctx, l.end = context.WithCancel(l.base)
	return l
}

func (l *connectionLine) renewContext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.ctx, l.end = context.WithCancel(l.base)
}

func (l *connectionLine) currentContext() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ctx
}

// waitContext is the context of one pull.
func (c *Client) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, pullWait)
	stop := context.AfterFunc(c.line.currentContext(), cancel)
	return ctx, func() { stop(); cancel() }
}
