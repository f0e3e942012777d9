// Package metrics counts the jobs that queue-scheduler ends, and what waits and runs, under the names
// that dashboards for Velero have (Velero 1.18, prefix velero_), and takes the time of its walks along
// the queue.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/count"
)

// Metrics are the counters; safe for concurrent use.
type Metrics struct {
	backups  *count.Backups
	restores *count.Restores
	walks    prometheus.Histogram
}

// New registers the counters.
func New(r prometheus.Registerer, s *count.Schedules) (*Metrics, error) {
	backups, err := count.NewBackups(s)
	if err != nil {
		return nil, err
	}
	restores, err := count.NewRestores(s)
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		backups: backups, restores: restores,
		walks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_queue_walk_seconds", Help: "Time to order the queue, decide about each job in it and start those that may start.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8), //nolint:mnd // 0.1 ms to 1.6 s
		}),
	}
	return m, r.Register(m.walks)
}

// Ended counts a Backup or Restore that got a terminal phase, by its schedule.
func (m *Metrics) Ended(obj client.Object) {
	switch o := obj.(type) {
	case *velerov1.Backup:
		m.backups.Ended(o)
	case *velerov1.Restore:
		m.restores.EndedAs(o)
	}
}

// QueueWalked takes the time of a walk.
func (m *Metrics) QueueWalked(took time.Duration) { m.walks.Observe(took.Seconds()) }
