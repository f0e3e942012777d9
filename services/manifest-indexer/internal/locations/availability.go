package locations

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

var available = prometheus.NewDesc("velero_backup_location_status_gauge", "Whether a backup location is available (1) or not (0).", []string{"backup_location_name"}, nil)

// availabilityGauge is the collector of the locations' phases, as they were written last. A location
// without a phase, and one that is gone, has no series. Safe for concurrent use.
type availabilityGauge struct {
	mu sync.Mutex
	up map[string]bool // by the location's name
}

func (a *availabilityGauge) setLocations(locs []velerov1.BackupStorageLocation) {
	up := make(map[string]bool, len(locs))
	for i := range locs {
		if phase := locs[i].Status.Phase; phase != "" {
			up[locs[i].Name] = phase == velerov1.LocationPhaseAvailable
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.up = up
}

// Describe implements prometheus.Collector.
func (*availabilityGauge) Describe(to chan<- *prometheus.Desc) { to <- available }

// Collect implements prometheus.Collector.
func (a *availabilityGauge) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, up := range a.up {
		value := 0.0
		if up {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(available, prometheus.GaugeValue, value, name)
	}
}
