package metrics

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// listTimeout bounds the lists of one reading: a cache that has not been filled yet is waited for.
const listTimeout = 5 * time.Second

// Config is what a Gauges needs.
type Config struct {
	Reader    client.Reader // a cache: it is read for every scrape
	Namespace string
	Clock     clock.PassiveClock
	Log       *slog.Logger
}

// Gauges is the collector of the gauges. All of it is derived from the objects when it is read, so that
// neither a restart nor a deletion leaves anything stale, and by the replica alone that makes the passes,
// so that sums count each object once. Safe for concurrent use.
type Gauges struct {
	Config
	leading   atomic.Pointer[context.Context] // of the run of While, nil outside of it
	intervals intervalCache
}

// NewGauges returns Gauges, which shows nothing outside of While.
func NewGauges(c Config) *Gauges { return &Gauges{Config: c} }

// ShowWhile returns run, during which the gauges are shown.
func (c *Gauges) ShowWhile(run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		c.leading.Store(&ctx)
		defer c.leading.Store(nil)
		return run(ctx)
	}
}

// Describe implements prometheus.Collector.
func (c *Gauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range descriptions {
		to <- desc
	}
}

// Collect implements prometheus.Collector. Objects that cannot be listed are logged, and nothing is
// shown then.
func (c *Gauges) Collect(to chan<- prometheus.Metric) {
	leading := c.leading.Load()
	if leading == nil || (*leading).Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(*leading, listTimeout)
	defer cancel()
	f := &foundJobs{now: c.Clock.Now()}
	for _, list := range []client.ObjectList{&f.backups, &f.restores, &f.schedules} {
		// The objects of the cache are read and not changed.
		if err := c.Reader.List(ctx, list, client.InNamespace(c.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			c.Log.Warn("Failed to list objects; this scrape lacks the gauges of backups, restores and schedules", "error", err)
			return
		}
	}
	f.sendMetrics(to, c.intervals.scheduleIntervals(f.schedules.Items, f.now))
}

// foundJobs is what there is at one time.
type foundJobs struct {
	now       time.Time
	backups   velerov1.BackupList
	restores  velerov1.RestoreList
	schedules velerov1.ScheduleList
}

func (f *foundJobs) sendMetrics(to chan<- prometheus.Metric, intervals map[string]time.Duration) {
	sendGauge(to, backupsExist, float64(len(f.backups.Items)))
	sendGauge(to, restoresExist, float64(len(f.restores.Items)))
	f.showLastBackups(to)
	f.showJobs(to)
	f.showSchedules(to, intervals)
}

func (f *foundJobs) showSchedules(to chan<- prometheus.Metric, intervals map[string]time.Duration) {
	for i := range f.schedules.Items {
		s := &f.schedules.Items[i]
		paused := 0.0
		if s.Spec.Paused {
			paused = 1
		}
		sendGauge(to, schedulePaused, paused, s.Name)
		sendGauge(to, scheduleCreated, float64(s.CreationTimestamp.Unix()), s.Name)
		if skipped := s.Status.LastSkipped; skipped != nil {
			sendGauge(to, scheduleSkipped, float64(skipped.Unix()), s.Name)
		}
		if interval, ok := intervals[s.Name]; ok {
			sendGauge(to, scheduleInterval, interval.Seconds(), s.Name)
		}
	}
}

func sendGauge(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}
