package metrics

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// censusPeriod is how often the restores that exist are counted.
const censusPeriod = 15 * time.Second

// Census keeps count of the restores that exist in a namespace, until ctx ends. The reader may be a
// cache. It returns nil.
func (m *Metrics) Census(ctx context.Context, reader client.Reader, namespace string, clk clock.WithTicker) error {
	ticker := clk.NewTicker(censusPeriod)
	defer ticker.Stop()
	for {
		var list velerov1.RestoreList
		if err := reader.List(ctx, &list, client.InNamespace(namespace)); err == nil {
			m.Exist(len(list.Items))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
