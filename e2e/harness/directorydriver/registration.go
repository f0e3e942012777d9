package directorydriver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	registerv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registration serves the plugin registration of a kubelet: it returns the socket of the driver.
type registration struct {
	registerv1.UnimplementedRegistrationServer
	name, socket string
}

// GetInfo implements registerv1.RegistrationServer.
func (r *registration) GetInfo(context.Context, *registerv1.InfoRequest) (*registerv1.PluginInfo, error) {
	return &registerv1.PluginInfo{Type: registerv1.CSIPlugin, Name: r.name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus implements registerv1.RegistrationServer. A kubelet that fails tries again.
func (r *registration) NotifyRegistrationStatus(ctx context.Context, s *registerv1.RegistrationStatus) (*registerv1.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		slog.WarnContext(ctx, "Failed to register the driver with the kubelet; the kubelet will retry", "driver", r.name, "error", s.GetError())
	}
	return &registerv1.RegistrationStatusResponse{}, nil
}

// serveRegistration serves the registration where the kubelet with this root directory looks for drivers.
func (d *Driver) serveRegistration() error {
	dir := filepath.Join(d.config.Kubelet, "plugins_registry")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("register driver %s: %w", d.config.Name, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, d.config.Name+"-reg.sock"), Net: "unix"})
	if err != nil {
		return fmt.Errorf("register driver %s: %w", d.config.Name, err)
	}
	d.serves.Go(func() { _ = d.server.Serve(listener) })
	return nil
}
