package kube

import (
	"context"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConcurrentLists reads several lists at once. An API server that answers consistent lists from its
// cache waits for the cache to be as new as the storage, up to 100 ms for each list that is read
// after a write of another kind: in turn these add up. Safe for concurrent use.
type ConcurrentLists struct{ Reader client.Reader }

// Lists reads all lists. Each is as new as the call. Of several errors one is returned, and the
// other reads are cancelled.
func (c ConcurrentLists) Lists(ctx context.Context, lists []client.ObjectList, options ...client.ListOption) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range lists {
		group.Go(func() error { return c.Reader.List(ctx, list, options...) })
	}
	return group.Wait()
}
