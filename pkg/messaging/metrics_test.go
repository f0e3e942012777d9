package messaging_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// What alerts are about: a hint that was given up, and not one that was handled.
func TestDeadLettersAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	b := newBed(t, func(c *messaging.Config) { c.Metrics = registry })
	b.consumeHints(messaging.ConsumerConfig{}, func(_ context.Context, h *workv1.Hint) messaging.Outcome {
		if h.GetUid() == "fine" {
			return messaging.Done()
		}
		return messaging.DeadLetter(errors.New("cannot be"))
	})
	for _, uid := range []string{"fine", "u1", "u2"} {
		b.publishHint(uid)
	}
	want := `
# HELP holdfast_dead_letters_total Hints that were given up and stored in the dead letter stream, by the kind of work.
# TYPE holdfast_dead_letters_total counter
holdfast_dead_letters_total{work="backup.run"} 2
`
	b.requireEventually(func() bool {
		return testutil.GatherAndCompare(registry, strings.NewReader(want), "holdfast_dead_letters_total") == nil && b.pendingMessages(messaging.StreamWork) == 0
	}, "two of three")
	require.EqualValues(t, 2, b.pendingMessages(messaging.StreamDead))
}
