// Package cluster is the cluster a backup reads, as one connection.
package cluster

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/rawlist"
	"github.com/holdfast-io/holdfast/pkg/resource"
)

// Cluster lists raw objects and discovers resources. Safe for concurrent use.
type Cluster struct {
	*rawlist.Client
	config *rest.Config
}

// New returns the cluster of cfg.
func New(cfg *rest.Config, clk clock.WithTicker) (*Cluster, error) {
	lists, err := rawlist.New(cfg, rawlist.Options{Clock: clk})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Cluster{Client: lists, config: cfg}, nil
}

// Discover asks what the cluster serves.
func (c *Cluster) Discover(ctx context.Context) (*resource.Catalog, error) {
	return resource.Discover(ctx, c.config)
}
