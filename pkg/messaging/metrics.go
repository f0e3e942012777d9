package messaging

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// deadLetters returns the counter of hints that were given up, registered unless r is nil.
func deadLetters(r prometheus.Registerer) (*prometheus.CounterVec, error) {
	dead := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_dead_letters_total", Help: "Hints that were given up and stored in the dead letter stream, by the kind of work.",
	}, []string{"work"})
	if r == nil {
		return dead, nil
	}
	if err := r.Register(dead); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return dead, nil
}
