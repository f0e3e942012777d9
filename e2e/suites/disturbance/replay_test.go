package disturbance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/service"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

const subjects = "holdfast.work."

// hintRecorder receives every hint that is published, over a connection of its own.
type hintRecorder struct {
	js jetstream.JetStream

	mu    sync.Mutex
	heard []*nats.Msg
	sent  int
}

func startRecorder(t *testing.T, url string) *hintRecorder {
	t.Helper()
	connection, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	r := &hintRecorder{}
	r.js, err = jetstream.New(connection)
	require.NoError(t, err)
	_, err = connection.Subscribe(subjects+">", func(m *nats.Msg) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !strings.Contains(m.Subject, ".again-") { // our own
			r.heard = append(r.heard, m)
		}
	})
	require.NoError(t, err)
	return r
}

// recordedHints returns what was heard so far, the newest first.
func (r *hintRecorder) recordedHints() []*nats.Msg {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := slices.Clone(r.heard)
	slices.Reverse(heard)
	return heard
}

// sendHint stores a hint on a subject of its own, so that nothing holds it back: the stream keeps one
// message for each subject.
func (r *hintRecorder) sendHint(ctx context.Context, subject string, data []byte) error {
	r.mu.Lock()
	r.sent++
	n := r.sent
	r.mu.Unlock()
	_, err := r.js.Publish(ctx, fmt.Sprintf("%s.again-%d", subject, n), data)
	return err
}

// messagesReplayed delivers every hint there ever was repeatedly, in the wrong order, to both
// replicas at once, beside hints for objects that do not exist, hints for the wrong consumer, and
// noise.
func (b *bed) messagesReplayed(t *testing.T) {
	before := b.bucket.Digests(t)
	running, release := b.startHeld(t, "replay-running", "alpha")
	b.replayHints(t)
	b.sendForeign(t)
	waiting := b.startJob(t, "replay-waiting", "alpha") // overlaps, so it waits while its hints are replayed
	other := b.startJob(t, "replay-other", "beta")
	b.replayHints(t)
	release()
	for _, j := range []*disturbedJob{running, waiting, other} {
		j.requireCompleted(t)
	}
	b.replayHints(t)
	b.awaitDrained(t)
	for _, j := range []*disturbedJob{running, waiting, other} {
		j.requireCompleted(t)
	}
	b.requireUnchanged(t, before)
}

// replayHints sends everything heard so far three times, the newest first.
func (b *bed) replayHints(t *testing.T) {
	t.Helper()
	hints := b.messages.recordedHints()
	require.NotEmpty(t, hints)
	for range 3 {
		for _, hint := range hints {
			require.NoError(t, b.messages.sendHint(t.Context(), hint.Subject, hint.Data))
		}
	}
}

// sendForeign sends what no service of this cluster would send.
func (b *bed) sendForeign(t *testing.T) {
	t.Helper()
	finished := b.backups["alpha"]
	installation, err := service.Installation(b.Site.Client, "velero")(t.Context())
	require.NoError(t, err)
	for _, what := range []messaging.What{messaging.WorkBackupRun, messaging.WorkRestoreRun, messaging.WorkDeletionRun} {
		for _, hint := range []*workv1.Hint{
			{Kind: "Backup", Namespace: "velero", Name: finished.Backup.Name, Uid: string(uuid.NewUUID())},         // a name of ours, another object
			{Kind: "Backup", Namespace: "velero", Name: "nobody", Uid: string(uuid.NewUUID())},                     // nothing of ours
			{Kind: "Backup", Namespace: "elsewhere", Name: finished.Backup.Name, Uid: string(finished.Backup.UID)}, // another server's
			{Kind: "Backup", Namespace: "velero", Name: "replay-running", Uid: string(finished.Backup.UID)},        // mixed up
			{Kind: "Restore", Namespace: "velero", Name: b.restore.Name, Uid: string(b.restore.UID)},               // ended, perhaps of the wrong kind
			{Kind: "DeleteBackupRequest", Namespace: "velero", Name: "x", Uid: string(uuid.NewUUID())},             // likewise
		} {
			data, err := proto.Marshal(hint)
			require.NoError(t, err)
			require.NoError(t, b.messages.sendHint(t.Context(), subjects+string(what)+"."+installation+"."+hint.GetUid(), data))
		}
		require.NoError(t, b.messages.sendHint(t.Context(), subjects+string(what)+"."+installation+".noise", []byte("\xff\xfenoise")))
	}
}
