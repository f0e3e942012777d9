package messaging_test

import (
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
)

func portOf(s *embednats.Server) string { return strconv.Itoa(s.Port()) }

func inspectConfig(url string) messaging.Config {
	return messaging.Config{URL: url, Name: "inspect", Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}}
}

func TestInspectFindsWhatServicesMade(t *testing.T) {
	b := newBed(t)
	state, err := messaging.Inspect(t.Context(), inspectConfig(b.server.URL()))
	require.NoError(t, err)
	require.NotEmpty(t, state.Server)
	require.EqualValues(t, 3*64<<20, state.Needed)
	require.Negative(t, state.Storage, "no limit")
	require.Equal(t, []messaging.StreamState{
		{Name: messaging.StreamWork, Replicas: 1, Current: 1}, {Name: messaging.StreamEvents, Replicas: 1, Current: 1}, {Name: messaging.StreamDead, Replicas: 1, Current: 1},
	}, state.Streams)
}

func TestInspectNamesWhatDiffers(t *testing.T) {
	b := newBed(t)
	stream, err := b.js.Stream(t.Context(), messaging.StreamEvents)
	require.NoError(t, err)
	cfg := stream.CachedInfo().Config
	cfg.MaxAge, cfg.MaxBytes, cfg.Subjects = time.Hour, 1<<20, []string{"holdfast.event.>", "else.>"}
	_, err = b.js.UpdateStream(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, b.js.DeleteStream(t.Context(), messaging.StreamDead))
	state, err := messaging.Inspect(t.Context(), inspectConfig(b.server.URL()))
	require.NoError(t, err)
	require.Empty(t, state.Streams[0].Differs)
	require.Equal(t, []string{
		"subjects is [holdfast.event.> else.>] and not [holdfast.event.>]", "max bytes is 1048576 and not 67108864", "max age is 1h0m0s and not 24h0m0s",
	}, state.Streams[1].Differs)
	require.True(t, state.Streams[2].Missing)
	_, err = b.js.Stream(t.Context(), messaging.StreamDead)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "nothing is created")
}

func TestInspectSaysWhyNothingCanBeRead(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone := listener.Addr().String()
	require.NoError(t, listener.Close())
	_, err = messaging.Inspect(t.Context(), inspectConfig("nats://user:hidden@"+gone))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hidden")
	_, err = messaging.Inspect(t.Context(), inspectConfig(""))
	require.ErrorContains(t, err, "url is empty")

	locked, err := embednats.Start(embednats.Config{Dir: t.TempDir(), Token: "hidden"})
	require.NoError(t, err)
	t.Cleanup(locked.Stop)
	_, err = messaging.Inspect(t.Context(), inspectConfig("nats://127.0.0.1:"+portOf(locked)))
	require.ErrorContains(t, err, "Authorization")

	plain, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	require.NoError(t, err)
	plain.Start()
	t.Cleanup(func() { plain.Shutdown(); plain.WaitForShutdown() })
	require.True(t, plain.ReadyForConnections(patience))
	_, err = messaging.Inspect(t.Context(), inspectConfig(plain.ClientURL()))
	require.ErrorIs(t, err, messaging.ErrNoJetStream)
}
