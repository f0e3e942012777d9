// Package cut keeps the revision at which a backup lists the cluster.
//
// All lists of a backup share one revision, so that what is stored existed at one moment. When the
// server has compacted that revision away, the lists not yet begun move to a newer one together;
// what was listed before stays as it is, and the manifest has which range is of which revision.
// Cluster is the connection to the cluster.
package cut

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Revisioner reads the newest revision of the cluster by a consistent read, and returns which kinds
// it is valid for. cluster.Cluster is one.
type Revisioner interface {
	Revision(ctx context.Context) (string, error)
	// Shares is that of Kinds.
	Shares(ctx context.Context, kind schema.GroupVersionResource, namespace, since string) (bool, error)
}

// Cut is the shared revision. Safe for concurrent use.
type Cut struct {
	source Revisioner
	off    bool

	mu       sync.Mutex
	current  string
	previous []string
}

// New returns a cut that is taken at the first use, unless Begin is called before. With consistent false there is none: every list
// takes the newest revision for itself.
func New(source Revisioner, consistent bool) *Cut {
	return &Cut{source: source, off: !consistent}
}

// Current returns the revision to list at, "" if there is no common one.
func (c *Cut) Current(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return "", nil
	}
	if c.current != "" {
		return c.current, nil
	}
	return c.takeRevision(ctx)
}

// For returns the revision to list a kind at, "" for the newest one, in a namespace or, where that
// is empty, in all. Apart is true for a kind that does not share the revisions of the others.
func (c *Cut) For(ctx context.Context, kind schema.GroupVersionResource, namespace string) (revision string, apart bool, err error) {
	revision, err = c.Current(ctx)
	if err != nil || revision == "" {
		return "", false, err
	}
	shares, err := c.source.Shares(ctx, kind, namespace, revision)
	if err != nil || !shares {
		return "", err == nil, err
	}
	return revision, false, nil
}

// Begin makes revision, the newest one at some time since the backup began, the common one without
// reading another, unless there is none or one was taken. It is to be called before any list begins.
func (c *Cut) Begin(revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.off && c.current == "" {
		c.setRevision(revision)
	}
}

// Newest returns a revision that was the newest of the cluster at some time before the call, "" if
// there is no common one. It takes no cut.
func (c *Cut) Newest(ctx context.Context) (string, error) {
	c.mu.Lock()
	off, current := c.off, c.current
	c.mu.Unlock()
	if off || current != "" {
		return current, nil
	}
	return c.source.Revision(ctx)
}

// Compare finds out ahead what For needs to know of a kind; since is what Newest returned.
func (c *Cut) Compare(ctx context.Context, kind schema.GroupVersionResource, since string) error {
	_, err := c.source.Shares(ctx, kind, "", since)
	return err
}

// Renew replaces an expired revision and returns the one to list at now. Of any number of callers
// that saw the same revision expire, one takes the new one.
func (c *Cut) Renew(ctx context.Context, expired string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return "", nil
	}
	if c.current != expired {
		return c.current, nil
	}
	return c.takeRevision(ctx)
}

// Adopt makes revision the common one in place of expired, unless another list was first. It is for
// a list that the server let go on at a newer revision.
func (c *Cut) Adopt(expired, revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.off && revision != "" && c.current == expired {
		c.setRevision(revision)
	}
}

// Restore makes revisions, as Revisions returned them, the ones taken so far. With none there is no
// common revision: that, too, was decided before. It is to be called before any list begins.
func (c *Cut) Restore(revisions []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off, c.current, c.previous = len(revisions) == 0, "", nil
	for _, revision := range revisions {
		c.setRevision(revision)
	}
}

// Revisions returns the common revisions in the order they were taken.
func (c *Cut) Revisions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := append([]string(nil), c.previous...)
	if c.current != "" {
		out = append(out, c.current)
	}
	return out
}

func (c *Cut) takeRevision(ctx context.Context) (string, error) {
	revision, err := c.source.Revision(ctx)
	if err != nil {
		return "", fmt.Errorf("take a cut: %w", err)
	}
	c.setRevision(revision)
	return revision, nil
}

func (c *Cut) setRevision(revision string) {
	if c.current != "" {
		c.previous = append(c.previous, c.current)
	}
	c.current = revision
}
