package verification

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	faultsDesc   = prometheus.NewDesc("holdfast_backup_verification_faults", "What the last verification of a backup of a schedule found wrong.", []string{"schedule"}, nil)
	verifiedDesc = prometheus.NewDesc("holdfast_backup_verification_timestamp_seconds", "When a backup of a schedule was verified last.", []string{"schedule"}, nil)
)

// outcomeGauges is the collector of the last outcome of each schedule. A schedule without one has no
// series. Safe for concurrent use.
type outcomeGauges struct {
	mu       sync.Mutex
	outcomes map[string]Outcome
}

func (g *outcomeGauges) setOutcomes(schedules map[string]*scheduleState) {
	outcomes := map[string]Outcome{}
	for name, s := range schedules {
		if !s.last.Time.IsZero() {
			outcomes[name] = s.last
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outcomes = outcomes
}

// Describe implements prometheus.Collector.
func (*outcomeGauges) Describe(to chan<- *prometheus.Desc) { to <- faultsDesc; to <- verifiedDesc }

// Collect implements prometheus.Collector.
func (g *outcomeGauges) Collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, o := range g.outcomes {
		to <- prometheus.MustNewConstMetric(faultsDesc, prometheus.GaugeValue, float64(o.Faults), name)
		to <- prometheus.MustNewConstMetric(verifiedDesc, prometheus.GaugeValue, float64(o.Time.Unix()), name)
	}
}
