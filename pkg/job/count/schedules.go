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

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const labelSchedule = "schedule"

// Schedules gives metrics with the label schedule a series, at zero, for each Schedule that exists,
// and one for jobs without a Schedule: rate() and increase() of Prometheus do not see the event
// that a series begins with. The series of a Schedule that is deleted are removed. Jobs of it that
// end later, and those of Schedules of other clusters, begin theirs by being counted. Safe for
// concurrent use.
type Schedules struct {
	registry prometheus.Registerer

	mu    sync.Mutex
	err   error
	known map[string]bool
	sets  []set
}

// set is one metric, by what makes the series of a Schedule and what removes them.
type set struct{ begin, remove func(schedule string) }

// NewSchedules returns Schedules whose metrics are registered with r.
func NewSchedules(r prometheus.Registerer) *Schedules {
	return &Schedules{registry: r, known: map[string]bool{"": true}}
}

// Counter registers a counter with the label schedule. A failure is that of Err.
func (s *Schedules) Counter(name, help string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelSchedule})
	s.add(vec, set{
		begin:  func(schedule string) { vec.WithLabelValues(schedule) },
		remove: func(schedule string) { vec.DeleteLabelValues(schedule) },
	})
	return vec
}

// Err is the failure to register a metric, nil if there was none.
func (s *Schedules) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Watch keeps up with the Schedules of the manager's namespace, by a controller of the given name.
func (s *Schedules) Watch(mgr ctrl.Manager, name string) error {
	look := func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
		err := mgr.GetClient().Get(ctx, r.NamespacedName, &velerov1.Schedule{})
		switch {
		case err == nil:
			s.exists(r.Name)
		case apierrors.IsNotFound(err):
			s.gone(r.Name)
			err = nil
		}
		return reconcile.Result{}, err
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named(name).For(&velerov1.Schedule{}).Complete(reconcile.Func(look)); err != nil {
		return fmt.Errorf("controller %s: %w", name, err)
	}
	return nil
}

func (s *Schedules) add(c prometheus.Collector, metric set) {
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

func (s *Schedules) exists(schedule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[schedule] = true
	for _, metric := range s.sets {
		metric.begin(schedule)
	}
}

func (s *Schedules) gone(schedule string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, schedule)
	for _, metric := range s.sets {
		metric.remove(schedule)
	}
}
