// Package plugintest calls plugins as a server does: over a socket, through both protocols, with
// everything encoded.
//
//	process := plugintest.Start(t, plugins())
//	out, err := process.BackupItemAction("example.io/quiesce").Execute(t.Context(), &plugin.BackupInput{
//		Item: plugintest.Object(t, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}`), Backup: plugintest.Job(t, "nightly"),
//	})
//
// The clients implement the interfaces that the plugins do, so a test reads as if it called the
// plugin itself. Their errors are gRPC statuses, as a server sees them.
package plugintest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os/exec"
	"testing"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/internal/wireserver"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

// Process is a plugin process, or what looks like one. It ends with the test.
type Process struct {
	conn *grpc.ClientConn
}

// Start serves the plugins of a registry inside the test, where a debugger and the race detector
// see them. The test fails at once if the registry holds a mistake, or an action cannot be made or
// does not say sensibly what it applies to.
func Start(t testing.TB, registry *plugin.Registry) *Process {
	t.Helper()
	registrations, err := registry.Plugins()
	if err != nil {
		t.Fatalf("plugins: %v", err)
	}
	server := wireserver.New(registrations, wireserver.Options{Command: "plugintest", Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // the test's own ends before its cleanups
	reattach, closed := make(chan *goplugin.ReattachConfig, 1), make(chan struct{})
	go goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: wireserver.Handshake,
		Plugins:         wireserver.ServerPlugins(server),
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(append(options, server.GRPCOptions()...), grpc.WaitForHandlers(true))...)
		},
		Logger: hclog.NewNullLogger(),
		Test:   &goplugin.ServeTestConfig{Context: ctx, ReattachConfigCh: reattach, CloseCh: closed},
	})
	t.Cleanup(func() { stop(); <-closed })
	var address *goplugin.ReattachConfig
	select {
	case address = <-reattach:
	case <-closed:
		t.Fatal("the plugins could not be served; is the directory for temporary files writable?")
	}
	p := connectProcess(t, &goplugin.ClientConfig{Reattach: address})
	p.checkSelectors(t, registrations)
	return p
}

// Exec starts a plugin's binary as a server does, with the flags given. What it writes to its
// standard error goes to the test's output.
func Exec(t testing.TB, path string, flags ...string) *Process {
	t.Helper()
	return ExecTo(t, t.Output(), path, flags...)
}

// ExecTo is Exec with another place for what the process writes to its standard error. After the
// test it is complete.
func ExecTo(t testing.TB, stderr io.Writer, path string, flags ...string) *Process {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), path, flags...)
	return connectProcess(t, &goplugin.ClientConfig{Cmd: command, Stderr: stderr})
}

func connectProcess(t testing.TB, config *goplugin.ClientConfig) *Process {
	t.Helper()
	config.HandshakeConfig = wireserver.Handshake
	config.Plugins = wireserver.ClientPlugins()
	config.AllowedProtocols = []goplugin.Protocol{goplugin.ProtocolGRPC}
	config.Logger = hclog.NewNullLogger()
	client := goplugin.NewClient(config)
	t.Cleanup(client.Kill)
	conn, err := wireserver.Connect(client)
	if err != nil {
		t.Fatalf("connect to the plugin: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &Process{conn: conn}
}

// checkSelectors asks every action what it applies to.
func (p *Process) checkSelectors(t testing.TB, registrations []plugin.Registration) {
	t.Helper()
	for _, r := range registrations {
		if len(r.Touches) == 0 {
			continue
		}
		if _, err := (client{p.conn, r.Kind, r.Name}).AppliesTo(t.Context()); err != nil {
			t.Fatalf("%s %s: AppliesTo: %v", r.Kind, r.Name, err)
		}
	}
}

// Conn returns the connection, for calls of the protocols that no client here makes.
func (p *Process) Conn() *grpc.ClientConn { return p.conn }

// Describe returns the process's answer to Describe.
func (p *Process) Describe(ctx context.Context) (*pluginv1.DescribeResponse, error) {
	return pluginv1.NewPluginServiceClient(p.conn).Describe(ctx, &pluginv1.DescribeRequest{})
}

// Object decodes an object from JSON.
func Object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	object, err := decodeObject([]byte(text))
	if err != nil {
		t.Fatalf("object: %v", err)
	}
	return object
}

// Job returns a Backup or Restore with a name, in the namespace velero.
func Job(t testing.TB, name string) *plugin.Job {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"name": name, "namespace": "velero", "uid": "uid-of-" + name}})
	if err != nil {
		t.Fatalf("job: %v", err)
	}
	return JobOf(t, string(raw))
}

// JobOf decodes a Backup or Restore from JSON.
func JobOf(t testing.TB, text string) *plugin.Job {
	t.Helper()
	job, err := plugin.NewJob([]byte(text))
	if err != nil {
		t.Fatalf("job: %v", err)
	}
	return job
}
