package queue_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

// Each kind of reason is one Event, however many passes find it; so is the admission.
func TestWaitingAndAdmissionAreEvents(t *testing.T) {
	b := newBed(t, ledger.Limits{Backups: 3}, interceptor.Funcs{})
	b.createBackup("one", 1, "ns1", "ns2")
	s := b.newScheduler()
	pass := func() {
		t.Helper()
		for range 3 {
			require.NoError(t, s.Pass(t.Context()))
		}
	}
	pass()
	b.createBackup("two", 2, "ns2", "ns3")
	b.createBackup("three", 3, "ns3")
	pass()
	b.setPhase("one", velerov1.BackupPhaseCompleted)
	pass()
	heard := b.voice.allEvents()
	for i, text := range heard { // how long they waited depends on the clock
		if admitted, waited, ok := strings.Cut(text, "after waiting "); ok {
			require.NotEmpty(t, waited)
			heard[i] = admitted
		}
	}
	slices.Sort(heard)
	require.Equal(t, []string{
		"one Admitted: ready to start ",
		"three Waiting: backup two is running on namespaces ns3",
		"three Waiting: two is ahead in the queue and waits for namespaces [ns3] too",
		"two Admitted: ready to start ",
		"two Waiting: backup one is running on namespaces ns2",
	}, heard)
}
