package disturbance

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// streamsDeleted takes away every consumer, then every stream, under running and new jobs.
func (b *bed) streamsDeleted(t *testing.T) {
	running, release := b.startHeld(t, "streams-running", "alpha")
	streams := listNames(t, b.messages.StreamNames(t.Context()))
	require.Contains(t, streams, messaging.StreamWork)
	for _, name := range streams {
		stream, err := b.messages.Stream(t.Context(), name)
		require.NoError(t, err)
		for _, consumer := range listNames(t, stream.ConsumerNames(t.Context())) {
			require.NoError(t, stream.DeleteConsumer(t.Context(), consumer))
		}
	}
	between := b.startJob(t, "streams-between", "beta")
	for _, name := range streams {
		require.NoError(t, b.messages.DeleteStream(t.Context(), name))
	}
	after := b.startJob(t, "streams-after", "gamma")
	release()
	for _, j := range []*disturbedJob{running, between, after} {
		j.requireCompleted(t)
	}
	b.awaitDrained(t)
}

// natsDown stops NATS under running jobs; others live their whole life while it is away.
func (b *bed) natsDown(t *testing.T) {
	running, release := b.startHeld(t, "down-running", "alpha")
	began := time.Now()
	b.Site.Fleet.StopNATS()
	born := b.startJob(t, "down-born", "beta")
	release()
	running.requireCompleted(t)
	born.requireCompleted(t)
	disturbanceEnd(t, began, disturbanceLength(10*time.Second))
	late := b.startJob(t, "down-late", "gamma")
	require.NoError(t, b.Site.Fleet.StartNATS())
	after := b.startJob(t, "down-after", "alpha")
	late.requireCompleted(t)
	after.requireCompleted(t)
	b.awaitDrained(t)
}

// awaitDrained waits until no hint is left.
func (b *bed) awaitDrained(t *testing.T) {
	t.Helper()
	left := ""
	require.Eventually(t, func() bool {
		stream, err := b.messages.Stream(t.Context(), messaging.StreamWork)
		if err != nil {
			return false
		}
		info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			return false
		}
		left = ""
		for subject := range info.State.Subjects {
			left += " " + subject
		}
		return info.State.Msgs == 0
	}, site.Patience, site.Look, "every hint is dealt with")
	require.Empty(t, left)
}

// lister is a listing of names of JetStream.
type lister interface {
	Name() <-chan string
	Err() error
}

func listNames(t *testing.T, l lister) []string {
	t.Helper()
	var found []string
	for name := range l.Name() {
		found = append(found, name)
	}
	require.NoError(t, l.Err())
	return found
}
