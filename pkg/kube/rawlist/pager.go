package rawlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// pager walks the pages of one list.
type pager struct {
	client   *Client
	req      Request
	sink     Sink
	revision string // "" until the first answer fixes it
	token    string
	limit    int64
	learnt   bool             // limit fits the size of the items
	splitter *jsonlist.Reader // kept for its buffer
	ahead    *pageRequest     // of the next page, nil if not asked for yet
	ctx      context.Context  //nolint:containedctx // of the page that is read
	large    memoryTurn       // at holding a large item
}

func (p *pager) newReader(body io.Reader) *jsonlist.Reader {
	if p.splitter == nil {
		p.splitter = jsonlist.NewReader(body, jsonlist.Options{MaxItemBytes: p.client.opts.MaxItemBytes,
			LargeBytes: largeBytes, Large: func() error { return p.large.enterTurn(p.ctx) }})
		return p.splitter
	}
	p.splitter.Reset(body)
	return p.splitter
}

// nextPage fetches one page and retries it as often as its failures deserve.
func (p *pager) nextPage(ctx context.Context) (Page, error) {
	opts := &p.client.opts
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 16, Cap: 10 * time.Second}
	started, tries, behind := opts.Clock.Now(), 0, 0
	for {
		page, err := p.attemptPage(ctx)
		if err == nil {
			p.advanceTo(page)
			return page, nil
		}
		if err := p.checkRetry(ctx, err, &tries, started); err != nil {
			return Page{}, err
		}
		if err := p.sink.Rollback(); err != nil {
			return Page{}, &SinkError{Err: err}
		}
		delay := backoff.Step()
		if f := (*retryableError)(nil); errors.As(err, &f) {
			delay = max(delay, f.after)
			if f.behind {
				behind++
			}
		}
		if behind >= doubtAfter {
			if err := p.brokenAnyhow(ctx); err != nil {
				if tries++; tries >= opts.Tries {
					return Page{}, err
				}
			}
		}
		if err := retry.Pause(ctx, p.client.opts.Clock, delay); err != nil {
			return Page{}, err
		}
	}
}

// doubtAfter is how many answers that the server has yet to see the revision are believed: a server
// catches up within the first.
const doubtAfter = 2

// brokenAnyhow returns the error of a list that fails at any revision. A kind that cannot be
// converted never gets into the server's cache, and is answered for a minute as if the cache were
// only late (Kubernetes 1.36).
func (p *pager) brokenAnyhow(ctx context.Context) error {
	rq := p.client.startRequest(ctx, p.client.pageURL(&p.req, "", "", 1), p.req.accepts())
	defer rq.endRequest()
	watch := newWatchdog(p.client.opts.Clock, p.client.opts.Stall, rq.cancel)
	defer watch.stop()
	watch.markBusy()
	<-rq.done
	watch.markIdle()
	if rq.err != nil || rq.resp.StatusCode == http.StatusOK {
		return nil // is no fact about the kind
	}
	var f *retryableError
	if err := responseError(rq.resp); errors.As(err, &f) && f.broken {
		return f.err
	}
	return nil
}

func (p *pager) advanceTo(page Page) {
	p.revision, p.token = page.Revision, page.Continue
}

// checkRetry returns the error to end with, nil if another attempt is due.
func (p *pager) checkRetry(ctx context.Context, err error, tries *int, started time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *retryableError
	if !errors.As(err, &f) {
		return err
	}
	if f.smaller {
		p.limit = max(p.limit/2, minLimit)
	}
	if f.broken || p.req.Aggregated {
		*tries++
	}
	opts := &p.client.opts
	if *tries >= opts.Tries || opts.Clock.Since(started) > opts.RetryTimeout {
		return f.err
	}
	return nil
}

// attemptPage requests the page once. A *failure may be tried again, other errors not.
func (p *pager) attemptPage(ctx context.Context) (Page, error) {
	rq := p.ahead
	p.ahead = nil
	if rq == nil {
		rq = p.launchRequest(ctx, p.token, p.revision)
	}
	defer rq.endRequest()
	watch := newWatchdog(p.client.opts.Clock, p.client.opts.Stall, rq.cancel)
	defer watch.stop()
	watch.markBusy()
	<-rq.done
	watch.markIdle()
	if rq.err != nil {
		return Page{}, &retryableError{err: causeOrError(rq.ctx, rq.err)}
	}
	if rq.resp.StatusCode != http.StatusOK {
		return Page{}, responseError(rq.resp)
	}
	page, err := p.splitBody(ctx, &watchedReader{r: rq.resp.Body, watch: watch})
	if f := (*retryableError)(nil); errors.As(err, &f) {
		f.err = causeOrError(rq.ctx, f.err)
	}
	if err != nil {
		p.dropPrefetch()
	}
	return page, err
}

// launchRequest starts the request for a page.
func (p *pager) launchRequest(ctx context.Context, token, revision string) *pageRequest {
	limit := p.limit
	if revision == "" {
		limit = min(limit, firstLimit)
	}
	return p.client.startRequest(ctx, p.client.pageURL(&p.req, revision, token, limit), p.req.accepts())
}

// lookAhead requests the next page while this one is read: lists of built-in kinds name it before
// their items. The first page decides how many items to request.
func (p *pager) lookAhead(ctx context.Context, meta jsonlist.ListMeta) {
	if p.ahead == nil && p.learnt && meta.Continue != "" && meta.ResourceVersion != "" {
		p.ahead = p.launchRequest(ctx, meta.Continue, meta.ResourceVersion)
	}
}

// dropPrefetch drops a page asked for ahead.
func (p *pager) dropPrefetch() {
	if p.ahead != nil {
		p.ahead.endRequest()
		p.ahead = nil
	}
}

// causeOrError names why a request was cancelled, if it was.
func causeOrError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// splitBody hands the items of one body to the sink and verifies its end.
func (p *pager) splitBody(ctx context.Context, body io.Reader) (Page, error) {
	p.ctx = ctx
	defer p.shrinkBuffers()
	counted := &countingReader{r: body, max: p.client.opts.MaxPageBytes}
	body = counted
	revision := p.revision
	if revision == "" {
		kept := newSpool(p.client.opts.Dir)
		defer kept.close()
		var err error
		if body, revision, err = p.readRevision(counted, kept); err != nil {
			return Page{}, err
		}
	}
	if err := p.sink.Begin(revision); err != nil {
		return Page{}, &SinkError{Err: err}
	}
	reader := p.newReader(body)
	items, err := p.readItems(reader, func(item jsonlist.Item) error {
		p.lookAhead(ctx, reader.List())
		return p.sink.Item(item)
	})
	if err != nil {
		return Page{}, err
	}
	meta := reader.List()
	if meta.ResourceVersion != revision {
		return Page{}, fmt.Errorf("%w: asked for %s, got %q", ErrRevision, revision, meta.ResourceVersion)
	}
	p.learnt = true
	p.limit = p.req.boundedLimit(p.client.learnLimit(p.req.pageKind(), p.limit, counted.n, items))
	return Page{Revision: meta.ResourceVersion, Continue: meta.Continue, APIVersion: meta.APIVersion,
		Kind: meta.Kind, Items: items, Remaining: meta.Remaining}, nil
}

// readItems reads a body to its end.
func (p *pager) readItems(reader *jsonlist.Reader, each func(jsonlist.Item) error) (int, error) {
	for n := 0; ; n++ {
		item, err := reader.Next()
		if err == io.EOF { //nolint:errorlint // io.EOF itself is the verified end; a wrapped one is not
			return n, nil
		}
		if errors.Is(err, jsonlist.ErrItemTooLarge) {
			return n, fmt.Errorf("item %d of the page: %w", n+1, err)
		}
		if errors.Is(err, ErrPageTooLarge) || errors.Is(err, errSpool) {
			return n, err
		}
		if err != nil {
			return n, &retryableError{err: fmt.Errorf("read the page: %w", err), broken: true, smaller: true}
		}
		if err := each(item); err != nil {
			return n, &SinkError{Err: err}
		}
	}
}

// shrinkBuffers drops what a large item needed.
func (p *pager) shrinkBuffers() {
	if p.large.held {
		p.splitter = nil
		p.large.leaveTurn()
	}
}

// readRevision reads a body up to its revision, which built-in kinds send ahead of the items
// and custom resources behind them, and returns the body from its start.
func (p *pager) readRevision(body io.Reader, kept *pageSpool) (io.Reader, string, error) {
	reader := p.newReader(io.TeeReader(body, kept))
	known := errors.New("the revision is known")
	_, err := p.readItems(reader, func(jsonlist.Item) error {
		if reader.List().ResourceVersion != "" {
			return known
		}
		return nil
	})
	if err != nil && !errors.Is(err, known) {
		return nil, "", err
	}
	start, err := kept.newReader()
	if err != nil {
		return nil, "", err
	}
	return io.MultiReader(start, body), reader.List().ResourceVersion, nil
}

// countingReader counts bytes and ends a body that is too large.
type countingReader struct {
	r      io.Reader
	n, max int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.max {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrPageTooLarge, c.max)
	}
	return n, err
}
