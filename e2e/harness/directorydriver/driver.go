// Package directorydriver is a CSI driver whose volumes and snapshots are directories, and files for block volumes: a
// snapshot is a copy of its volume at the cut. It needs no node: tests write where a Pod would, through Write. On a node
// it registers with the kubelet, and containers get bind mounts and loop devices.
package directorydriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
)

// Name is the usual name of the driver.
const Name = "directory.example.com"

// SocketIn returns the usual socket of a driver in a directory.
func SocketIn(dir string) string { return filepath.Join(dir, "csi.sock") }

// Config is where a driver works. Every field but Kubelet is required.
type Config struct {
	// Name is the driver's, as StorageClasses and VolumeSnapshotClasses have it.
	Name string
	// Dir gets the directories of volumes and snapshots.
	Dir string
	// Socket is the path of the Unix socket that it listens on.
	Socket string
	Clock  clock.PassiveClock
	// Kubelet is the root directory of a kubelet of the same mount namespace, with which the driver registers; it takes
	// root and Linux. Without one volumes are published as symbolic links.
	Kubelet string
}

// Driver is a running driver. Safe for concurrent use.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	config Config
	server *grpc.Server
	serves sync.WaitGroup

	mu        sync.Mutex
	volumes   map[string]*driverVolume   // by id
	snapshots map[string]*driverSnapshot // by id
	behaviour map[string]Behaviour       // of snapshots, by id of the volume
	changed   chan struct{}              // closed when a behaviour changes
	refused   error                      // of removals of snapshots
	taken     int
	restored  int
}

// Start starts a driver. The caller calls Close.
func Start(config Config) (*Driver, error) {
	for _, dir := range []string{"volumes", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(config.Dir, dir), 0o700); err != nil {
			return nil, fmt.Errorf("start driver %s: %w", config.Name, err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: config.Socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("start driver %s: %w", config.Name, err)
	}
	d := &Driver{
		config: config, server: grpc.NewServer(), volumes: map[string]*driverVolume{}, snapshots: map[string]*driverSnapshot{},
		behaviour: map[string]Behaviour{}, changed: make(chan struct{}),
	}
	csi.RegisterIdentityServer(d.server, d)
	csi.RegisterControllerServer(d.server, d)
	csi.RegisterNodeServer(d.server, d)
	registerv1.RegisterRegistrationServer(d.server, &registration{name: config.Name, socket: config.Socket})
	d.serves.Go(func() { _ = d.server.Serve(listener) })
	if config.Kubelet != "" {
		if err := d.serveRegistration(); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// Close ends the driver and the calls that it has not answered. Directories and mounts stay. The kernel frees a loop device
// after its last unmount.
func (d *Driver) Close() {
	d.server.Stop()
	d.serves.Wait()
	for _, v := range d.volumes {
		if v.device != nil {
			_ = v.device.Close()
		}
	}
}

// copyFiles makes a directory or file as another one is, with owners, modes, times and holes.
func copyFiles(ctx context.Context, from, to string) error {
	if output, err := exec.CommandContext(ctx, "cp", "-a", "--", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// ErrNoVolume means that the driver has no such volume.
var ErrNoVolume = errors.New("no such volume")

// AttachVolume returns where processes without a kubelet find a volume: its directory, or a loop device for a block volume, which takes
// root and Linux, and stays until the volume is removed.
func (d *Driver) AttachVolume(volume string) (path string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.volumes[volume]
	if v == nil {
		return "", fmt.Errorf("%w: %s", ErrNoVolume, volume)
	}
	if !v.block {
		return v.path, nil
	}
	if v.device == nil {
		if v.device, err = attachDevice(v.path); err != nil {
			return "", err
		}
	}
	return v.device.Name(), nil
}

// Write calls change with the directory of a volume. No snapshot of it is cut meanwhile, as none is
// cut within a write to a disk.
func (d *Driver) Write(volume string, change func(dir string) error) error {
	d.mu.Lock()
	v := d.volumes[volume]
	d.mu.Unlock()
	if v == nil {
		return fmt.Errorf("%w: %s", ErrNoVolume, volume)
	}
	v.writes.Lock()
	defer v.writes.Unlock()
	return change(v.path)
}
