package disturbance

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/gate"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// streamsDeleted takes away every consumer, then every stream, under running and new jobs.
func (b *bed) streamsDeleted(t *testing.T) {
	running, release := b.startHeld(t, "streams-running", "alpha")
	streams := listNames(t, b.messages.js.StreamNames(t.Context()))
	require.Contains(t, streams, messaging.StreamWork)
	for _, name := range streams {
		stream, err := b.messages.js.Stream(t.Context(), name)
		require.NoError(t, err)
		for _, consumer := range listNames(t, stream.ConsumerNames(t.Context())) {
			require.NoError(t, stream.DeleteConsumer(t.Context(), consumer))
		}
	}
	between := b.startJob(t, "streams-between", "beta")
	for _, name := range streams {
		require.NoError(t, b.messages.js.DeleteStream(t.Context(), name))
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

// natsOldData gives NATS a copy of its data from a time when jobs were running that have ended, and
// one of which has been deleted since.
func (b *bed) natsOldData(t *testing.T) {
	unsaved := b.gate.Hold(gate.Writes("backups/old-deleted/parts/"))
	t.Cleanup(unsaved.Release)
	b.Site.Backup(t, "old-deleted", b.bucket, "beta")
	running, release := b.startHeld(t, "old-running", "alpha")
	site.AwaitHeld(t, unsaved)
	saved := filepath.Join(t.TempDir(), "nats")
	b.Site.Fleet.StopNATS()
	require.NoError(t, b.Site.Fleet.SaveNATS(saved))
	require.NoError(t, b.Site.Fleet.StartNATS())
	release()
	unsaved.Release()
	running.requireCompleted(t)
	b.Site.BackupEnds(t, "old-deleted")
	b.Site.DeleteBackup(t, "old-deleted")
	before := b.bucket.Digests(t)

	b.Site.Fleet.StopNATS()
	require.NoError(t, b.Site.Fleet.RestoreNATS(saved))
	require.NoError(t, b.Site.Fleet.StartNATS())
	after := b.startJob(t, "old-after", "gamma")
	after.requireCompleted(t)
	b.awaitDrained(t)
	b.requireUnchanged(t, before)
	for _, kind := range []string{"Backup", "Restore"} {
		b.Site.History.RanOnce(t, kind, running.name)
	}
}

// awaitDrained waits until no hint is left.
func (b *bed) awaitDrained(t *testing.T) {
	t.Helper()
	left := ""
	require.Eventually(t, func() bool {
		stream, err := b.messages.js.Stream(t.Context(), messaging.StreamWork)
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

// requireUnchanged requires what was in the bucket to be there still, as it was.
func (b *bed) requireUnchanged(t *testing.T, before map[string]string) {
	t.Helper()
	now := b.bucket.Digests(t)
	for key, digest := range before {
		if !isTransient(key) {
			require.Equal(t, digest, now[key], key)
		}
	}
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

// isTransient reports what is created and removed in the bucket at any time: probes of the
// location, and parts and records that were not swept yet.
func isTransient(key string) bool {
	return !strings.HasPrefix(key, "backups/") && !strings.HasPrefix(key, "restores/") || strings.Contains(key, "/parts/") || strings.Contains(key, "/records/")
}
