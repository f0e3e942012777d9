// Package count counts how backups and restores begin and end, under the names that dashboards and
// alerts for Velero have (Velero 1.18, prefix velero_).
//
// A process counts what it has written itself: who writes the terminal phase of a job counts it, so
// the sum over all processes counts each job once.
package count

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	labelSchedule = "schedule"
	// readLimit bounds the read of a Schedule: a cache that has not been filled yet is waited for.
	readLimit = 5 * time.Second
)

// Schedules has the metrics with the label schedule. Its values are the names of the Schedules that
// exist, and "" for everything else: jobs without a Schedule, those of Schedules that were deleted,
// and those whose label velero.io/schedule-name names another cluster's or anything else, so that
// nothing that users write adds a series.
//
// Each value has a series from the beginning, at zero: rate() and increase() of Prometheus do not
// see the event that a series begins with. The series of a Schedule that is deleted are removed.
// Safe for concurrent use.
type Schedules struct {
	registry  prometheus.Registerer
	cached    client.Reader
	namespace string

	mu    sync.Mutex
	err   error
	known map[string]bool
	sets  []metricSet
}

// metricSet is one metric, by what makes the series of a Schedule and what removes them.
type metricSet struct{ begin, remove func(schedule string) }

// Counter is a counter with the label schedule. Safe for concurrent use.
type Counter struct {
	schedules *Schedules
	vec       *prometheus.CounterVec
}

// Add adds n, which is not negative, to the series of a schedule.
func (c *Counter) Add(schedule string, n float64) {
	c.schedules.withSeries(schedule, func(value string) { c.vec.WithLabelValues(value).Add(n) })
}

// Inc adds 1 to the series of a schedule.
func (c *Counter) Inc(schedule string) { c.Add(schedule, 1) }

// NewSchedules returns Schedules whose metrics are registered with r. It reads the Schedules of a
// namespace from a cache.
func NewSchedules(r prometheus.Registerer, cached client.Reader, namespace string) *Schedules {
	return &Schedules{registry: r, cached: cached, namespace: namespace, known: map[string]bool{"": true}}
}

// Counter registers a counter with the label schedule. A failure is that of Err.
func (s *Schedules) Counter(name, help string) *Counter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelSchedule})
	s.addMetric(vec, metricSet{
		begin:  func(schedule string) { vec.WithLabelValues(schedule) },
		remove: func(schedule string) { vec.DeleteLabelValues(schedule) },
	})
	return &Counter{s, vec}
}

// Err is the failure to register a metric, nil if there was none.
func (s *Schedules) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Watch keeps up with the Schedules of the manager's namespace, which has to be that of s, by a
// controller of the given name.
func (s *Schedules) Watch(mgr ctrl.Manager, name string) error {
	look := func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		err := s.cached.Get(ctx, r.NamespacedName, &velerov1.Schedule{})
		switch {
		case err == nil:
			s.noteSchedule(r.Name)
		case apierrors.IsNotFound(err):
			s.removeSchedule(r.Name)
			err = nil
		}
		return reconcile.Result{}, err
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named(name).For(&velerov1.Schedule{}).Complete(reconcile.Func(look)); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	return nil
}

func (s *Schedules) addMetric(c prometheus.Collector, metric metricSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.registry.Register(c); err != nil {
		s.err = errors.Join(s.err, fmt.Errorf("register metrics: %w", err))
	}
	s.sets = append(s.sets, metric)
	for schedule := range s.known {
		metric.begin(schedule)
	}
}

// withSeries calls do with the value of the label for a schedule. The lock is held until do has
// returned: a series that was removed does not come back.
func (s *Schedules) withSeries(schedule string, do func(value string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known[schedule] && !s.readSchedule(schedule) {
		schedule = ""
	}
	do(schedule)
}

// readSchedule reports whether the cache has a Schedule that Watch has not seen yet, as in the first moments
// of a process, and begins its series. One that cannot be read is as one that does not exist.
//
// The caller holds the lock: a deletion that the cache has after this read is seen by Watch, which
// waits for the lock to remove the series.
func (s *Schedules) readSchedule(schedule string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit) //nolint:forbidigo // counters have no context, and this reads a cache
	defer cancel()
	if err := s.cached.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: schedule}, &velerov1.Schedule{}); err != nil {
		return false
	}
	s.beginSeries(schedule)
	return true
}

func (s *Schedules) beginSeries(schedule string) {
	s.known[schedule] = true
	for _, metric := range s.sets {
		metric.begin(schedule)
	}
}

func (s *Schedules) noteSchedule(schedule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginSeries(schedule)
}

func (s *Schedules) removeSchedule(schedule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, schedule)
	for _, metric := range s.sets {
		metric.remove(schedule)
	}
}
