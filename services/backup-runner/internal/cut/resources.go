package cut

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
)

// Reasons for another revision than the backup's, as the manifest gives them.
const (
	ReasonCompacted = "compacted"
	ReasonForeign   = "the server counts revisions of its own"
	ReasonApart     = "its storage counts revisions of its own"
)

// MaxExpiries bounds how often in a row a list may expire before its first page.
const MaxExpiries = 5

// foreignReason returns why objects of a kind are never listed at the common revision, "" if they may be:
// aggregated servers count revisions of their own, and events may live in a store of their own.
func foreignReason(res *resource.Resource) string {
	switch {
	case res.Aggregated:
		return "aggregated"
	case res.Name == "events" && (res.Kind.Group == "" || res.Kind.Group == "events.k8s.io"):
		return "events"
	}
	return ""
}

// Of returns the revision to list a resource at, "" for the newest one, in a namespace or, where
// that is empty, in all, and why it is not the common one.
func (c *Cut) Of(ctx context.Context, res *resource.Resource, namespace string) (revision, reason string, err error) {
	if reason = foreignReason(res); reason != "" {
		return "", reason, nil
	}
	if res.Custom { // all of them are kept with the rest
		revision, err = c.Current(ctx)
		return revision, "", err
	}
	revision, apart, err := c.For(ctx, res.GVR(), namespace)
	if apart {
		reason = ReasonApart
	}
	return revision, reason, err
}

// comparisons is how many kinds are compared with the cut at once.
const comparisons = 16

// CompareAll finds out ahead which kinds share the cut's revisions, as Compare does for one: Of
// needs the answer. Of repeats a comparison that fails.
func (c *Cut) CompareAll(ctx context.Context, kinds []resource.Resource) error {
	since, err := c.Newest(ctx)
	if err != nil || since == "" {
		return err
	}
	var group panics.Group
	group.SetLimit(comparisons)
	for i := range kinds {
		if ctx.Err() != nil {
			break
		}
		res := &kinds[i]
		if res.Custom || foreignReason(res) != "" {
			continue
		}
		group.Go(func() error { return c.Compare(ctx, res.GVR(), since) })
	}
	return group.Wait()
}
