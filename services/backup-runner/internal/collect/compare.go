package collect

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/pkg/resource"
)

// foreign says why objects of a kind are never listed at the common revision, "" if
// they may be: aggregated servers count revisions of their own, and events may live in
// a store of their own.
func foreign(res *resource.Resource) string {
	switch {
	case res.Aggregated:
		return "aggregated"
	case res.Name == "events" && (res.Kind.Group == "" || res.Kind.Group == "events.k8s.io"):
		return "events"
	}
	return ""
}

// revision returns the revision to list a kind at, in a namespace or, where that is
// empty, in all, and why it is not the common one.
func (r *run) revision(ctx context.Context, res *resource.Resource, namespace string) (revision, reason string, err error) {
	if reason = foreign(res); reason != "" {
		return "", reason, nil
	}
	if res.Custom { // all of them are kept with the rest
		revision, err = r.Cut.Current(ctx)
		return revision, "", err
	}
	revision, apart, err := r.Cut.For(ctx, res.GVR(), namespace)
	if apart {
		reason = reasonApart
	}
	return revision, reason, err
}

// comparisons is how many kinds are compared with the cut at once.
const comparisons = 16

// compare finds out, while the lists are prepared and begin, which kinds share the
// cut's revisions: each list of a kind needs the answer first. What it cannot find out
// is asked again, and noted, by the list itself. The returned function ends it.
func (r *run) compare(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	kinds, done := r.Catalog.Backupable(r.Filter.Resource), make(chan struct{})
	go func() {
		defer close(done)
		_ = r.safely(func() error { return r.compareAll(ctx, kinds) })
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *run) compareAll(ctx context.Context, kinds []resource.Resource) error {
	since, err := r.Cut.Newest(ctx)
	if err != nil || since == "" {
		return err
	}
	var group errgroup.Group
	group.SetLimit(comparisons)
	for _, res := range kinds {
		if ctx.Err() != nil {
			break
		}
		if res.Custom || foreign(&res) != "" {
			continue
		}
		group.Go(func() error {
			return r.safely(func() error { return r.Cut.Compare(ctx, res.GVR(), since) })
		})
	}
	return group.Wait()
}
