package cut

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
)

// Cluster lists raw objects, compares revisions and discovers resources. Safe for concurrent use.
type Cluster struct {
	*rawlist.Client
	*Kinds
	config *rest.Config
}

// NewCluster returns the cluster of cfg. Pages that are too long for memory wait in dir.
func NewCluster(cfg *rest.Config, clk clock.WithTicker, dir string) (*Cluster, error) {
	lists, err := rawlist.New(cfg, rawlist.Options{Clock: clk, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Cluster{Client: lists, Kinds: NewKinds(lists, clk), config: cfg}, nil
}

// Discover returns the resources that the cluster serves.
func (c *Cluster) Discover(ctx context.Context) (*resource.Catalog, error) {
	return resource.Discover(ctx, c.config)
}
