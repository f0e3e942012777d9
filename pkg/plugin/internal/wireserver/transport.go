package wireserver

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Handshake is Velero's, so that its servers start our plugins.
var Handshake = goplugin.HandshakeConfig{ProtocolVersion: 2, MagicCookieKey: "VELERO_PLUGIN", MagicCookieValue: "hello"}

// name under which all services are registered; it is never on the wire.
const name = "plugins"

// PluginServices registers the services of a process.
type PluginServices interface {
	Register(r grpc.ServiceRegistrar)
}

// ServerPlugins is the set for a process that serves the services.
func ServerPlugins(services PluginServices) goplugin.PluginSet {
	return goplugin.PluginSet{name: &grpcPlugin{services: services}}
}

// ClientPlugins is the set for a client.
func ClientPlugins() goplugin.PluginSet { return goplugin.PluginSet{name: &grpcPlugin{}} }

// Connect returns the connection of a client that was made with Calling.
func Connect(client *goplugin.Client) (*grpc.ClientConn, error) {
	protocol, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := protocol.Dispense(name)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, errors.New("the plugin does not speak gRPC")
	}
	return conn, nil
}

// grpcPlugin registers everything at once on one side, and hands out the connection on the other.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	services PluginServices
}

// GRPCServer registers the services.
func (p *grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	p.services.Register(s)
	return nil
}

// GRPCClient returns the connection.
func (*grpcPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}
