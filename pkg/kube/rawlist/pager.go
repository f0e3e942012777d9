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
	ahead    *request         // of the next page, nil if not asked for yet
	ctx      context.Context  //nolint:containedctx // of the page that is read
	large    turn             // at holding a large item
}

func (p *pager) reader(body io.Reader) *jsonlist.Reader {
	if p.splitter == nil {
		p.splitter = jsonlist.NewReader(body, jsonlist.Options{MaxItemBytes: p.client.opts.MaxItemBytes,
			LargeBytes: largeBytes, Large: func() error { return p.large.enter(p.ctx) }})
		return p.splitter
	}
	p.splitter.Reset(body)
	return p.splitter
}

// next fetches one page and retries it as often as its failures deserve.
func (p *pager) next(ctx context.Context) (Page, error) {
	opts := &p.client.opts
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 16, Cap: 10 * time.Second}
	started, tries, behind := opts.Clock.Now(), 0, 0
	for {
		page, err := p.attempt(ctx)
		if err == nil {
			p.advance(page)
			return page, nil
		}
		if err := p.giveUp(ctx, err, &tries, started); err != nil {
			return Page{}, err
		}
		if err := p.sink.Rollback(); err != nil {
			return Page{}, &SinkError{Err: err}
		}
		delay := backoff.Step()
		if f := (*failure)(nil); errors.As(err, &f) {
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
	rq := p.client.start(ctx, p.client.url(&p.req, "", "", 1))
	defer rq.end()
	watch := newWatchdog(p.client.opts.Clock, p.client.opts.Stall, rq.cancel)
	defer watch.stop()
	watch.busy()
	<-rq.done
	watch.idle()
	if rq.err != nil || rq.resp.StatusCode == http.StatusOK {
		return nil // is no fact about the kind
	}
	var f *failure
	if err := answer(rq.resp); errors.As(err, &f) && f.broken {
		return f.err
	}
	return nil
}

func (p *pager) advance(page Page) {
	p.revision, p.token = page.Revision, page.Continue
}

// giveUp returns the error to end with, nil if another attempt is due.
func (p *pager) giveUp(ctx context.Context, err error, tries *int, started time.Time) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *failure
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

// attempt requests the page once. A *failure may be tried again, other errors not.
func (p *pager) attempt(ctx context.Context) (Page, error) {
	rq := p.ahead
	p.ahead = nil
	if rq == nil {
		rq = p.launch(ctx, p.token, p.revision)
	}
	defer rq.end()
	watch := newWatchdog(p.client.opts.Clock, p.client.opts.Stall, rq.cancel)
	defer watch.stop()
	watch.busy()
	<-rq.done
	watch.idle()
	if rq.err != nil {
		return Page{}, &failure{err: causeOr(rq.ctx, rq.err)}
	}
	if rq.resp.StatusCode != http.StatusOK {
		return Page{}, answer(rq.resp)
	}
	page, err := p.split(ctx, &watchedReader{r: rq.resp.Body, watch: watch})
	if f := (*failure)(nil); errors.As(err, &f) {
		f.err = causeOr(rq.ctx, f.err)
	}
	if err != nil {
		p.forget()
	}
	return page, err
}

// launch starts the request for a page.
func (p *pager) launch(ctx context.Context, token, revision string) *request {
	limit := p.limit
	if revision == "" {
		limit = min(limit, firstLimit)
	}
	return p.client.start(ctx, p.client.url(&p.req, revision, token, limit))
}

// lookAhead requests the next page while this one is read: lists of built-in kinds name it before
// their items. The first page decides how many items to request.
func (p *pager) lookAhead(ctx context.Context, meta jsonlist.ListMeta) {
	if p.ahead == nil && p.learnt && meta.Continue != "" && meta.ResourceVersion != "" {
		p.ahead = p.launch(ctx, meta.Continue, meta.ResourceVersion)
	}
}

// forget drops a page asked for ahead.
func (p *pager) forget() {
	if p.ahead != nil {
		p.ahead.end()
		p.ahead = nil
	}
}

// causeOr names why a request was cancelled, if it was.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// split hands the items of one body to the sink and verifies its end.
func (p *pager) split(ctx context.Context, body io.Reader) (Page, error) {
	p.ctx = ctx
	defer p.small()
	counted := &countingReader{r: body, max: p.client.opts.MaxPageBytes}
	body = counted
	revision := p.revision
	if revision == "" {
		kept := newSpool(p.client.opts.Dir)
		defer kept.close()
		var err error
		if body, revision, err = p.foresee(counted, kept); err != nil {
			return Page{}, err
		}
	}
	if err := p.sink.Begin(revision); err != nil {
		return Page{}, &SinkError{Err: err}
	}
	reader := p.reader(body)
	items, err := p.items(reader, func(item jsonlist.Item) error {
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
	p.limit = p.req.bounded(p.client.learn(p.req.Resource, p.limit, counted.n, items))
	return Page{Revision: meta.ResourceVersion, Continue: meta.Continue, APIVersion: meta.APIVersion,
		Kind: meta.Kind, Items: items, Remaining: meta.Remaining}, nil
}

// items reads a body to its end.
func (p *pager) items(reader *jsonlist.Reader, each func(jsonlist.Item) error) (int, error) {
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
			return n, &failure{err: fmt.Errorf("read the page: %w", err), broken: true, smaller: true}
		}
		if err := each(item); err != nil {
			return n, &SinkError{Err: err}
		}
	}
}

// small drops what a large item needed.
func (p *pager) small() {
	if p.large.held {
		p.splitter = nil
		p.large.leave()
	}
}

// foresee reads a body up to its revision, which built-in kinds send ahead of the items
// and custom resources behind them, and returns the body from its start.
func (p *pager) foresee(body io.Reader, kept *spool) (io.Reader, string, error) {
	reader := p.reader(io.TeeReader(body, kept))
	known := errors.New("the revision is known")
	_, err := p.items(reader, func(jsonlist.Item) error {
		if reader.List().ResourceVersion != "" {
			return known
		}
		return nil
	})
	if err != nil && !errors.Is(err, known) {
		return nil, "", err
	}
	start, err := kept.reader()
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
