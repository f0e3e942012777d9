package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
)

// Observer receives the latency and the throttling of each request to the API server.
type Observer interface {
	// Observe is called for each response: its latency, and whether it was a 429 or an overload.
	Observe(latency time.Duration, throttled bool)
}

const (
	// patience is how long one request is repeated while the server is away or overloaded.
	patience   = 5 * time.Minute
	firstPause = 50 * time.Millisecond
	maxPause   = 5 * time.Second
	// metadataOnly is the Accept header for a response with metadata only, or with the whole object
	// from a server that does not support that.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	wholeObject  = "application/json"
)

// Client sends single requests. Safe for concurrent use.
type Client struct {
	rest     rest.Interface
	manager  Manager
	observer Observer
	clock    clock.WithTicker
	confirm  func(ctx context.Context) error
	dry      *DryRun // nil for a client that does what it is asked for
}

// NewClient returns a client for the cluster of cfg, whose own rate limit is taken off. What it
// creates and changes has manager as its field manager. confirm is called before each request that
// changes something, which is not sent after an error; nil allows all.
func NewClient(cfg *rest.Config, manager Manager, observer Observer, clk clock.WithTicker, confirm func(ctx context.Context) error) (*Client, error) {
	if confirm == nil {
		confirm = func(context.Context) error { return nil }
	}
	own := rest.CopyConfig(cfg)
	own.QPS = -1
	own.RateLimiter = nil
	own.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	own.ContentType = wholeObject
	c, err := rest.UnversionedRESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Client{rest: c, manager: manager, observer: observer, clock: clk, confirm: confirm}, nil
}

// Target names an object, or where a new one goes.
type Target struct {
	GVR             schema.GroupVersionResource
	Namespace, Name string
}

// resourcePath of the collection, and of the object when name is not empty.
func (t Target) resourcePath(name string) []string {
	p := []string{"apis", t.GVR.Group, t.GVR.Version}
	if t.GVR.Group == "" {
		p = []string{"api", t.GVR.Version}
	}
	if t.Namespace != "" {
		p = append(p, "namespaces", t.Namespace)
	}
	p = append(p, t.GVR.Resource)
	if name != "" {
		p = append(p, name)
	}
	return p
}

// metadataAnswer is the part of an object's metadata that decides.
type metadataAnswer struct {
	Metadata Identity `json:"metadata"`
}

// Identity is an object at one version.
type Identity struct {
	UID     types.UID `json:"uid"`
	Version string    `json:"resourceVersion"`
}

// createObject posts an object and returns what it became; strict refuses one with fields that the
// version does not have. maybe reports that an earlier attempt of this
// call may have created it, without an answer having come back.
func (c *Client) createObject(ctx context.Context, t Target, body []byte, strict bool) (id Identity, maybe bool, err error) {
	if c.dry != nil && (!c.dry.Server || c.dry.isFresh(t.Namespace)) {
		return c.dry.noteCreation(t), false, nil
	}
	raw, maybe, err := c.sendWithRetry(ctx, c.confirm, func() *rest.Request {
		post := c.rest.Post()
		if strict {
			post.Param("fieldValidation", "Strict")
		}
		if c.dry != nil {
			post.Param("dryRun", metav1.DryRunAll)
		}
		return post.AbsPath(t.resourcePath("")...).Param("fieldManager", string(c.manager)).SetHeader("Content-Type", wholeObject).SetHeader("Accept", metadataOnly).Body(body)
	})
	if c.dry != nil && (err == nil || c.dry.isUnknowable(t, err)) {
		return c.dry.noteCreation(t), false, nil
	}
	if err != nil {
		return Identity{}, maybe, err
	}
	id, err = decodeIdentity(raw)
	return id, maybe, err
}

// getObject reads a whole object.
func (c *Client) getObject(ctx context.Context, t Target) ([]byte, error) {
	if c.dry.isFresh(t.Namespace) {
		return nil, absentError(t)
	}
	raw, _, err := c.sendWithRetry(ctx, confirmFree, func() *rest.Request {
		return c.rest.Get().AbsPath(t.resourcePath(t.Name)...).SetHeader("Accept", wholeObject)
	})
	return raw, err
}

// confirmFree confirms requests that change nothing.
func confirmFree(context.Context) error { return nil }

// Get reads a whole object. The error of an absent object satisfies apierrors.IsNotFound.
func (c *Client) Get(ctx context.Context, t Target) ([]byte, error) { return c.getObject(ctx, t) }

// Serves reports whether the cluster serves a resource in its version.
func (c *Client) Serves(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	if c.dry.definesKind(gvr) {
		return true, nil
	}
	path := (Target{GVR: gvr}).resourcePath("")
	raw, _, err := c.sendWithRetry(ctx, confirmFree, func() *rest.Request {
		return c.rest.Get().AbsPath(path[:len(path)-1]...).SetHeader("Accept", wholeObject)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil {
		return false, fmt.Errorf("decode the server's answer: %w", err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }), nil
}

// Patch sends a JSON merge patch for an object that this restore created, and returns what the
// object became.
func (c *Client) Patch(ctx context.Context, t Target, patch any) (Identity, error) {
	if c.dry != nil {
		return c.dry.noteCreation(t), nil
	}
	return c.patchEncoded(ctx, t, c.manager, patch)
}

// PatchExisting sends a JSON merge patch for an object that was in the cluster before the restore.
func (c *Client) PatchExisting(ctx context.Context, t Target, patch any) (Identity, error) {
	return c.patchEncoded(ctx, t, c.manager.managerForExisting(), patch)
}

func (c *Client) patchEncoded(ctx context.Context, t Target, manager Manager, patch any) (Identity, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return Identity{}, fmt.Errorf("encode patch: %w", err)
	}
	return c.sendPatch(ctx, t, manager, body)
}

func (c *Client) sendPatch(ctx context.Context, t Target, manager Manager, body []byte) (Identity, error) {
	raw, _, err := c.sendWithRetry(ctx, c.confirm, func() *rest.Request {
		patch := c.newPatch(t, body)
		if c.dry != nil {
			patch.Param("dryRun", metav1.DryRunAll)
		}
		return patch.Param("fieldManager", string(manager)).SetHeader("Accept", metadataOnly)
	})
	if c.dry != nil && lacksDryRun(err) {
		return Identity{}, nil // whether it would be refused is not known
	}
	if err != nil {
		return Identity{}, err
	}
	return decodeIdentity(raw)
}

// newPatch returns a request with a merge patch.
func (c *Client) newPatch(t Target, body []byte) *rest.Request {
	return c.rest.Patch(types.MergePatchType).AbsPath(t.resourcePath(t.Name)...).Body(body)
}

func decodeIdentity(raw []byte) (Identity, error) {
	var a metadataAnswer
	if err := json.Unmarshal(raw, &a); err != nil {
		return Identity{}, fmt.Errorf("decode the server's answer: %w", err)
	}
	return a.Metadata, nil
}

// sendWithRetry repeats a request while the answer only means "not now". maybe reports that an attempt got
// no answer at all.
func (c *Client) sendWithRetry(ctx context.Context, confirm func(context.Context) error, request func() *rest.Request) (raw []byte, maybe bool, err error) {
	start := c.clock.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := confirm(ctx); err != nil {
			return nil, maybe, err
		}
		sent := c.clock.Now()
		result := request().MaxRetries(0).Do(ctx)
		err = result.Error() // decodes the server's Status, which Raw would not
		if err == nil {
			raw, err = result.Raw()
		}
		again, throttled, unanswered := classifyError(err)
		c.observer.Observe(c.clock.Since(sent), throttled)
		maybe = maybe || unanswered
		if !again || ctx.Err() != nil || c.clock.Since(start) > patience {
			return raw, maybe, err
		}
		wait := pause/2 + rand.N(pause)
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			wait = max(wait, time.Duration(seconds)*time.Second)
		}
		if err := retry.Pause(ctx, c.clock, wait); err != nil {
			return nil, maybe, err
		}
	}
}

// classifyError reports whether to try again, whether the server asked to slow down, and whether the
// request may have been carried out without an answer.
func classifyError(err error) (again, throttled, unanswered bool) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false, false, false
	case apierrors.IsTooManyRequests(err):
		return true, true, false
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err):
		return true, true, true
	case apierrors.IsUnauthorized(err): // see kube.IsTransient
		return true, false, false
	case errors.As(err, &status):
		code := status.Status().Code
		gateway := code == http.StatusBadGateway || code == http.StatusGatewayTimeout
		return gateway, gateway, gateway
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false, false, true
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err),
		utilnet.IsTimeout(err), utilnet.IsHTTP2ConnectionLost(err), isNetworkError(err):
		return true, false, true
	}
	return false, false, true
}

// isNetworkError reports that the way to the server failed: a name not resolved, no route, a broken
// connection. What the HTTP client wraps is looked at, since its own type is a net.Error whatever
// happened.
func isNetworkError(err error) bool {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	var inner net.Error // *net.OpError and *net.DNSError are
	return errors.As(err, &inner)
}

// Create posts an object and returns its UID. An existing one, which may be the work of this very
// call, satisfies apierrors.IsAlreadyExists.
func (c *Client) Create(ctx context.Context, t Target, obj map[string]any) (types.UID, error) {
	body, err := json.Marshal(obj)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	id, _, err := c.createObject(ctx, t, body, false)
	return id.UID, err
}
