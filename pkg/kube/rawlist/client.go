package rawlist

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

// Options tunes a Client; zero values mean the defaults named.
type Options struct {
	// Clock times retries. Required.
	Clock clock.WithTicker
	// PageBytes is the size of page to aim at. Default 4 MiB.
	PageBytes int64
	// FirstLimit is the number of items asked for before the size of the items of a resource is
	// known. Default 100.
	FirstLimit int64
	// MaxItemBytes bounds one item. Default 8 MiB.
	MaxItemBytes int
	// MaxPageBytes bounds one page, which a server that ignores limits makes as large as the list.
	// Default 2 GiB.
	MaxPageBytes int64
	// Dir is where long pages wait whose revision comes last. Default: the system's directory for
	// temporary files.
	Dir string
	// Tries bounds attempts that fail with an answer of the server saying that it is broken.
	// Default 4.
	Tries int
	// RetryTimeout is how long an unreachable or overloaded server is retried since it last answered.
	// Default 10 min.
	RetryTimeout time.Duration
	// Stall is how long an answer may stop arriving. Default 90 s.
	Stall time.Duration
}

func (o *Options) setDefaults() {
	setDefault(&o.PageBytes, 4<<20)
	setDefault(&o.FirstLimit, 100)
	setDefault(&o.MaxItemBytes, 8<<20)
	setDefault(&o.MaxPageBytes, 2<<30)
	setDefault(&o.Tries, 4)
	setDefault(&o.RetryTimeout, 10*time.Minute)
	setDefault(&o.Stall, 90*time.Second)
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Client lists raw objects of one cluster. Safe for concurrent use.
type Client struct {
	http *http.Client
	base *url.URL
	opts Options

	large chan struct{} // held by the list that holds a large item

	mu     sync.Mutex
	limits map[pageKind]int64 // page sizes learnt
}

// pageKind is what objects of like size have in common.
type pageKind struct {
	resource schema.GroupVersionResource
	metadata bool
}

// New returns a client for the cluster of cfg, whose rate limits do not apply.
func New(cfg *rest.Config, opts Options) (*Client, error) {
	if opts.Clock == nil {
		return nil, errors.New("rawlist: Options.Clock is required")
	}
	opts.setDefaults()
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true // see get
	cfg.Timeout = 0
	// Frames and windows of HTTP/2 cost both sides CPU: a list of 50,000 objects takes a third less of
	// the client's over HTTP/1.1, and a tenth less of the server's.
	cfg.NextProtos = []string{"http/1.1"}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("rawlist: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("rawlist: %w", err)
	}
	return &Client{http: httpClient, base: base, opts: opts, large: make(chan struct{}, 1), limits: map[pageKind]int64{}}, nil
}

// Request names the objects of one list.
type Request struct {
	Resource schema.GroupVersionResource
	// Namespace limits the list to one namespace; empty lists all of them, or cluster-scoped
	// objects.
	Namespace string
	// Selector is a label selector in its text form.
	Selector string
	// Fields is a field selector in its text form.
	Fields string
	// Revision is the exact revision to list at. Empty takes the newest one by a consistent read;
	// the pages after the first stay at what it answered.
	Revision string
	// Continue continues after an earlier page, whose revision Revision then is, or after the
	// ExpiredError that carried it, with Revision empty.
	Continue string
	// MaxItems, if positive, bounds the items asked for with one page.
	MaxItems int64
	// Aggregated is true for resources behind the aggregation layer, whose server being away is an
	// error soon, not a reason to wait.
	Aggregated bool
	// Metadata asks for objects with their metadata alone: each is of kind PartialObjectMetadata, unless
	// the server cannot do so and sends it whole.
	Metadata bool
}

func (r *Request) pageKind() pageKind { return pageKind{r.Resource, r.Metadata} }

// accepts is the value of the header Accept.
func (r *Request) accepts() string {
	if r.Metadata {
		return "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	}
	return "application/json"
}

// boundedLimit returns limit, or what the request allows.
func (r *Request) boundedLimit(limit int64) int64 {
	if r.MaxItems > 0 {
		return min(limit, r.MaxItems)
	}
	return limit
}

// Page describes a verified page.
type Page struct {
	// Revision is the resource version the page shows.
	Revision string
	// Continue is the token of the next page, empty on the last one.
	Continue string
	// APIVersion and Kind are those of the list ("v1", "PodList").
	APIVersion, Kind string
	// Items is the number of items of this page.
	Items int
	// Remaining is the server's estimate of items after this page, -1 if unknown.
	Remaining int64
}

// Sink receives the items of a list, all calls from one goroutine.
type Sink interface {
	// Begin announces the items of a page and the revision they are of.
	Begin(revision string) error
	// Item takes one item, whose bytes are valid until it returns.
	Item(item jsonlist.Item) error
	// Commit is called after the last item of a verified page.
	Commit(page Page) error
	// Rollback voids the items since the last Commit: they will come again. It is also called
	// before List returns an error in the middle of a page.
	Rollback() error
}

// List sends every object of the request to sink. Errors: *ExpiredError, ErrRevision, *StatusError,
// *SinkError, the error of ctx, or the last network error; in every case the pages committed before
// stand.
func (c *Client) List(ctx context.Context, req Request, sink Sink) error {
	p := pager{client: c, req: req, sink: sink, revision: req.Revision, token: req.Continue, large: memoryTurn{of: c.large}}
	p.limit = req.boundedLimit(c.pageLimit(req.pageKind()))
	defer p.dropPrefetch()
	for {
		page, err := p.nextPage(ctx)
		if err != nil {
			return errors.Join(err, sink.Rollback())
		}
		if err := sink.Commit(page); err != nil {
			return &SinkError{Err: err}
		}
		if page.Continue == "" {
			return nil
		}
	}
}

// Revision returns the newest revision of the cluster, by a consistent read.
func (c *Client) Revision(ctx context.Context) (string, error) {
	revision, err := c.RevisionOf(ctx, namespaces, "")
	if err != nil {
		return "", fmt.Errorf("read the cluster's revision: %w", err)
	}
	return revision, nil
}

// RevisionOf returns the newest revision of the storage that holds a resource, by a consistent
// read. An API server may keep resources in different ones. The namespace to read in is for who may
// not read in all of them; else it is empty.
func (c *Client) RevisionOf(ctx context.Context, r schema.GroupVersionResource, namespace string) (string, error) {
	var last lastPage
	p := pager{client: c, req: Request{Resource: r, Namespace: namespace, MaxItems: 1}, sink: &last, limit: 1, large: memoryTurn{of: c.large}}
	page, err := p.nextPage(ctx)
	if err != nil {
		return "", err
	}
	return page.Revision, nil
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// lastPage drops items.
type lastPage struct{}

func (lastPage) Begin(string) error       { return nil }
func (lastPage) Item(jsonlist.Item) error { return nil }
func (lastPage) Commit(Page) error        { return nil }
func (lastPage) Rollback() error          { return nil }

func (c *Client) pageLimit(r pageKind) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.limits[r]; ok {
		return n
	}
	return c.opts.FirstLimit
}

// Bounds of the page size in items.
const (
	minLimit = 4
	maxLimit = 4000
	// firstLimit bounds a page whose revision is not known in advance: it may have to be kept until
	// the end of its body was read.
	firstLimit = 16
)

// learnLimit sets the page size from the items seen, growing at most fourfold.
func (c *Client) learnLimit(r pageKind, limit, bytes int64, items int) int64 {
	if items == 0 {
		return limit
	}
	want := c.opts.PageBytes / max(bytes/int64(items), 1)
	want = max(min(want, limit*4, maxLimit), minLimit)
	c.rememberLimit(r, want)
	return want
}

func (c *Client) rememberLimit(r pageKind, limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[r] = limit
}

// pageURL builds the address of one page.
func (c *Client) pageURL(req *Request, revision, token string, limit int64) string {
	u := *c.base
	elements := []string{"apis", req.Resource.Group, req.Resource.Version}
	if req.Resource.Group == "" {
		elements = []string{"api", req.Resource.Version}
	}
	if req.Namespace != "" {
		elements = append(elements, "namespaces", req.Namespace)
	}
	u = *u.JoinPath(append(elements, req.Resource.Resource)...)
	q := url.Values{"limit": {strconv.FormatInt(limit, 10)}}
	if req.Selector != "" {
		q.Set("labelSelector", req.Selector)
	}
	if req.Fields != "" {
		q.Set("fieldSelector", req.Fields)
	}
	switch {
	case token != "":
		q.Set("continue", token)
	case revision != "":
		q.Set("resourceVersion", revision)
		q.Set("resourceVersionMatch", "Exact")
	}
	u.RawQuery = q.Encode()
	return u.String()
}
