package control

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
)

// Metrics counts requests. The first two have Velero's names.
type Metrics struct {
	accepted, ended *prometheus.CounterVec
	transfers       *prometheus.CounterVec
	// moved has Velero's names too, by kind and phase.
	moved map[string]*prometheus.CounterVec

	// These have Velero's names, but for the gauges.
	maintenanceGood, maintenanceBad *prometheus.CounterVec
	maintenanceTime                 *prometheus.HistogramVec
	maintained, interval            *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		moved:           map[string]*prometheus.CounterVec{},
		accepted:        counter("podVolume_pod_volume_backup_enqueue_count", "PodVolumeBackups that were accepted.", "node"),
		ended:           counter("podVolume_pod_volume_backup_dequeue_count", "PodVolumeBackups that ended after they were accepted.", "node"),
		transfers:       counter("holdfast_volume_transfers_total", "Requests to move data of volumes that ended, by kind and phase.", "kind", "phase"),
		maintenanceGood: counter("velero_repo_maintenance_success_total", "Runs of maintenance that succeeded.", labelRepository),
		maintenanceBad:  counter("velero_repo_maintenance_failure_total", "Runs of maintenance that failed.", labelRepository),
		maintenanceTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "velero_repo_maintenance_duration_seconds", Help: "Time of a run of maintenance.", Buckets: []float64{60, 300, 600, 900, 1800, 3600, 7200, 10800, 14400},
		}, []string{labelRepository}),
		maintained: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_repository_maintained_timestamp_seconds", Help: "When a repository was last maintained, or made if it never was.",
		}, []string{labelRepository}),
		interval: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_repository_maintenance_interval_seconds", Help: "Time between two runs of maintenance of a repository.",
		}, []string{labelRepository}),
	}
	all := []prometheus.Collector{m.accepted, m.ended, m.transfers, m.maintenanceGood, m.maintenanceBad, m.maintenanceTime, m.maintained, m.interval}
	for kind, name := range map[string]string{kindUpload: "data_upload", kindDownload: "data_download"} {
		for phase, end := range map[velerov1.PodVolumePhase]string{
			velerov1.PodVolumePhaseCompleted: "success", velerov1.PodVolumePhaseFailed: "failure", velerov1.PodVolumePhaseCanceled: "cancel",
		} {
			c := counter("podVolume_"+name+"_"+end+"_total", kind+"s that ended as "+string(phase)+".", "node")
			m.moved[kind+string(phase)], all = c, append(all, c)
		}
	}
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// labelRepository has the name of the BackupRepository.
const labelRepository = "repository_name"

// countMaintenance counts a run of maintenance.
func (m *Metrics) countMaintenance(repository string, succeeded bool, took time.Duration) {
	count := m.maintenanceBad
	if succeeded {
		count = m.maintenanceGood
	}
	count.WithLabelValues(repository).Inc()
	m.maintenanceTime.WithLabelValues(repository).Observe(took.Seconds())
}

// hideRepositories shows no repository any more.
func (m *Metrics) hideRepositories() {
	m.maintained.Reset()
	m.interval.Reset()
}

func (m *Metrics) countAccepted(v view) {
	if b, ok := v.Object.(*velerov1.PodVolumeBackup); ok {
		m.accepted.WithLabelValues(b.Spec.Node).Inc()
	}
}

func (m *Metrics) countEnd(v view, phase velerov1.PodVolumePhase) {
	m.transfers.WithLabelValues(v.kind, string(phase)).Inc()
	switch r := v.Object.(type) {
	case *velerov1.PodVolumeBackup:
		if *v.accepted != nil {
			m.ended.WithLabelValues(r.Spec.Node).Inc()
		}
	case *v2alpha1.DataUpload:
		m.moved[v.kind+string(phase)].WithLabelValues(r.Status.Node).Inc()
	case *v2alpha1.DataDownload:
		m.moved[v.kind+string(phase)].WithLabelValues(r.Status.Node).Inc()
	}
}
