// Package disturbance holds scenarios in which everything around running jobs fails or is
// restarted: services, NATS, its data, the API server.
package disturbance

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDisturbances shares one cluster, one bucket and undisturbed jobs to compare with among all
// scenarios.
func TestDisturbances(t *testing.T) {
	b := newBed(t)
	for _, scenario := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"streams and consumers are deleted", b.streamsDeleted},
		{"NATS is down", b.natsDown},
		{"every service is restarted, twice", b.rollingRestart},
		{"the API server dies", b.apiServerDies},
		{"the API server hangs", b.apiServerHangs},
		{"a runner dies", b.realDeath},
		{"nothing is left behind", b.requireSettled},
	} {
		began := time.Now()
		if !t.Run(scenario.name, scenario.run) {
			return // the next one would not start from a sound state
		}
		t.Logf("%s: %.1f s", scenario.name, time.Since(began).Seconds())
	}
}
