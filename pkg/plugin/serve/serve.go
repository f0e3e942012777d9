// Package serve makes a process of plugins. The whole of a plugin's main function is
//
//	func main() {
//		if err := serve.Run(plugins()); err != nil {
//			fmt.Fprintln(os.Stderr, err)
//			os.Exit(1)
//		}
//	}
//
// The process is started by a Holdfast or Velero server that finds the binary in its plugin
// directory.
package serve

import (
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/internal/wireserver"
)

// Run serves the plugins until the server that started the process ends it. It fails if the
// registry holds a mistake. Of the command line only --log-level and --features are read,
// everything else is the server's. Standard output and error belong to the server, so log with
// Env.Log. When nobody's plugin directory is involved, Run says so and the process exits with
// status 1.
func Run(registry *plugin.Registry) error {
	registrations, err := registry.Plugins()
	if err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	flags := parseFlags(os.Args[1:])
	// The file, not the variable: the transport replaces the latter, and the server reads log lines
	// from the former.
	stderr := os.Stderr
	server := wireserver.New(registrations, wireserver.Options{Command: os.Args[0], Log: newLogger(stderr, flags.level), Features: flags.features})
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: wireserver.Handshake,
		Plugins:         wireserver.ServerPlugins(server),
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options, server.GRPCOptions()...)...)
		},
		// Its own errors only: what it says of itself is of no use to those who read a backup's
		// log.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: stderr, JSONFormat: true, DisableTime: true}),
	})
	return nil
}
