package chart_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// startThreeServers starts a cluster of servers, and returns them.
func startThreeServers(t *testing.T) []*server.Server {
	t.Helper()
	ports, err := testbed.FreePorts(3)
	require.NoError(t, err)
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var all []*server.Server
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("nats-%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT,
			JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, DisableJetStreamBanner: true,
			Cluster: server.ClusterOpts{Name: "nats", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		require.NoError(t, err)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		s.Start()
		all = append(all, s)
	}
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(all, func(s *server.Server) bool {
			return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(all)
		})
	}, site.Patience, site.Look, "the servers know one another")
	return all
}

// With as many copies as servers, the loss of one server loses no hint.
func TestStreamsHaveAsManyCopiesAsAsked(t *testing.T) {
	servers := startThreeServers(t)
	client, err := messaging.Connect(t.Context(), messaging.Config{
		URL: servers[0].ClientURL() + "," + servers[1].ClientURL() + "," + servers[2].ClientURL(), Name: t.Name(),
		Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{}, Replicas: 3,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.Eventually(t, func() bool { return client.EnsureStreams(t.Context()) == nil }, site.Patience, site.Look)
	require.NoError(t, client.Publish(t.Context(), messaging.WorkBackupRun, &workv1.Hint{Kind: "Backup", Namespace: "velero", Name: "daily", Uid: "u1"}))

	servers[0].Shutdown()
	servers[0].WaitForShutdown()
	conn, err := nats.Connect(servers[1].ClientURL())
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	for _, name := range []string{messaging.StreamWork, messaging.StreamEvents, messaging.StreamDead} {
		require.Eventually(t, func() bool {
			stream, err := js.Stream(t.Context(), name)
			if err != nil {
				return false // no leader yet
			}
			info := stream.CachedInfo()
			return info.Config.Replicas == 3 && (name != messaging.StreamWork || info.State.Msgs == 1)
		}, site.Patience, site.Look, name)
	}
}
