package chart_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// natsFiles writes what the Pod of NATS mounts, and returns the configuration, which names the
// directory of the certificate in place of /tls.
func natsFiles(t *testing.T, objects []*unstructured.Unstructured) (config, tlsDir string, secret map[string]string) {
	t.Helper()
	secret, _, err := unstructured.NestedStringMap(objectNamed(objects, "Secret", chart.Release+"-nats").Object, "stringData")
	require.NoError(t, err)
	tlsDir = t.TempDir()
	for name, content := range componentCertificate(t, objects, "nats") {
		require.NoError(t, os.WriteFile(filepath.Join(tlsDir, name), content, 0o600))
	}
	config = filepath.Join(t.TempDir(), "nats.conf")
	text := strings.ReplaceAll(secret["nats.conf"], `"/tls/`, `"`+tlsDir+`/`)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	return config, tlsDir, secret
}

// NATS's own reader understands the configuration, and finds in it what the services rely on.
func TestTheConfigurationOfNATS(t *testing.T) {
	t.Setenv("POD_NAME", "holdfast-nats-0")
	for _, replicas := range []int{1, 3} {
		objects := renderChart(t, "--set", fmt.Sprintf("nats.replicas=%d", replicas))
		path, _, secret := natsFiles(t, objects)
		options, err := server.ProcessConfigFile(path)
		require.NoError(t, err)
		require.True(t, options.SyncAlways && options.JetStream && options.StoreDir == "/data")
		require.Equal(t, "holdfast-nats-0", options.ServerName)
		require.Equal(t, secret["token"], options.Authorization)
		require.Equal(t, "tls://"+secret["token"]+"@holdfast-nats:4222", secret["url"])
		require.NotNil(t, options.TLSConfig)
		if replicas == 1 {
			require.Empty(t, options.Routes)
			continue
		}
		require.NotNil(t, options.Cluster.TLSConfig)
		require.Len(t, options.Routes, replicas)
		password, _ := options.Routes[0].User.Password()
		require.Equal(t, options.Cluster.Password, password)
		set, _, err := unstructured.NestedFieldNoCopy(objectNamed(objects, "StatefulSet", chart.Release+"-nats").Object, "spec", "replicas")
		require.NoError(t, err)
		require.EqualValues(t, replicas, set)
	}
}

// A real server runs with the chart's configuration: clients with the token and the authority of the
// chart are let in, no others are.
func TestNATSRefusesWhoHasNoCredentials(t *testing.T) {
	t.Setenv("POD_NAME", "holdfast-nats-0")
	path, tlsDir, secret := natsFiles(t, renderChart(t))
	options, err := server.ProcessConfigFile(path)
	require.NoError(t, err)
	options.Host, options.Port, options.HTTPPort, options.StoreDir, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
	s := startServer(t, options)
	address, ca := "tls://"+s.Addr().String(), filepath.Join(tlsDir, "ca.crt")

	client, err := messaging.Connect(t.Context(), messaging.Config{
		URL: "tls://" + secret["token"] + "@" + s.Addr().String(), CAFile: ca, Name: t.Name(), Log: slog.New(slog.DiscardHandler), Clock: clock.RealClock{},
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.Eventually(t, client.Connected, site.Patience, site.Look)
	for name, options := range map[string][]nats.Option{
		"no token": {nats.RootCAs(ca)}, "wrong token": {nats.RootCAs(ca), nats.Token("wrong")}, "no authority": {nats.Token(secret["token"])},
	} {
		conn, err := nats.Connect(address, append(options, nats.Timeout(10*time.Second))...)
		if err == nil {
			conn.Close()
		}
		require.Error(t, err, name)
	}
}

// Servers of a cluster present the chart's certificate to each other, and check it.
func TestTheServersOfAClusterTrustEachOther(t *testing.T) {
	path, _, secret := natsFiles(t, renderChart(t, "--set", "nats.replicas=3"))
	ports, err := testbed.FreePorts(2)
	require.NoError(t, err)
	var routes []*url.URL
	for _, port := range ports {
		routes = append(routes, &url.URL{Scheme: "nats", User: url.UserPassword("route", secret["token"]), Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var servers []*server.Server
	for i, port := range ports {
		t.Setenv("POD_NAME", fmt.Sprintf("holdfast-nats-%d", i))
		options, err := server.ProcessConfigFile(path)
		require.NoError(t, err)
		require.Equal(t, tls.RequireAndVerifyClientCert, options.Cluster.TLSConfig.ClientAuth)
		options.Host, options.Port, options.HTTPPort, options.StoreDir, options.NoSigs, options.NoLog = "127.0.0.1", server.RANDOM_PORT, 0, t.TempDir(), true, true
		options.Cluster.Host, options.Cluster.Port, options.Routes = "127.0.0.1", port, routes
		servers = append(servers, startServer(t, options))
	}
	for _, s := range servers {
		require.Eventually(t, func() bool { return s.NumRoutes() > 0 }, site.Patience, site.Look)
	}
}

// startServer runs a server until the test ends.
func startServer(t *testing.T, options *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(options)
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	require.True(t, s.ReadyForConnections(site.Patience))
	return s
}
