package control

import (
	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// Metrics counts requests. The first two have Velero's names.
type Metrics struct {
	accepted, ended *prometheus.CounterVec
	transfers       *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		accepted:  counter("podVolume_pod_volume_backup_enqueue_count", "PodVolumeBackups that were accepted.", "node"),
		ended:     counter("podVolume_pod_volume_backup_dequeue_count", "PodVolumeBackups that ended after they were accepted.", "node"),
		transfers: counter("holdfast_volume_transfers_total", "Requests to move data of volumes that ended, by kind and phase.", "kind", "phase"),
	}
	for _, c := range []prometheus.Collector{m.accepted, m.ended, m.transfers} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) countAccepted(v view) {
	if b, ok := v.Object.(*velerov1.PodVolumeBackup); ok {
		m.accepted.WithLabelValues(b.Spec.Node).Inc()
	}
}

func (m *Metrics) countEnd(v view, phase velerov1.PodVolumePhase) {
	m.transfers.WithLabelValues(v.kind, string(phase)).Inc()
	if b, ok := v.Object.(*velerov1.PodVolumeBackup); ok && *v.accepted != nil {
		m.ended.WithLabelValues(b.Spec.Node).Inc()
	}
}
