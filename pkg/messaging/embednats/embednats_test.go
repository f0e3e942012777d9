package embednats_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connectServer(t *testing.T, s *embednats.Server) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(s.URL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return js
}

func TestDataSurvivesARestartOnTheSamePort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "on", "start")
	s, err := embednats.Start(embednats.Config{Dir: dir})
	require.NoError(t, err)
	js := connectServer(t, s)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s.1", []byte("kept"))
	require.NoError(t, err)
	port := s.Port()
	s.Stop()
	s.Stop()

	s, err = embednats.Start(embednats.Config{Dir: dir, Port: port})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	require.Equal(t, port, s.Port())
	stream, err := connectServer(t, s).Stream(t.Context(), "S")
	require.NoError(t, err)
	msg, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "kept", string(msg.Data))
}

func TestStartNamesWhatIsWrong(t *testing.T) {
	_, err := embednats.Start(embednats.Config{})
	require.ErrorContains(t, err, "dir")
}

// TestATokenKeepsOthersOut: loopback is open to every user of the machine, and work and events
// could be read and made up.
func TestATokenKeepsOthersOut(t *testing.T) {
	s, err := embednats.Start(embednats.Config{Dir: t.TempDir(), Token: "secret"})
	require.NoError(t, err)
	defer s.Stop()
	_, err = nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", s.Port()))
	require.ErrorIs(t, err, nats.ErrAuthorization)
	conn, err := nats.Connect(s.URL())
	require.NoError(t, err)
	conn.Close()
}
