//go:build node

package directorydriver_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
)

const size = 1 << 20

var (
	blockMode = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
	filesMode = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}}}
)

// mountedDriver is a driver that mounts, and what its clients use.
type mountedDriver struct {
	dir, socket string
	connection  *grpc.ClientConn
	controller  csi.ControllerClient
	node        csi.NodeClient
}

// startMounted starts a driver that mounts. The test ends with no loop device more than before.
func startMounted(t *testing.T) *mountedDriver {
	t.Helper()
	before := attachedDevices(t)
	t.Cleanup(func() { require.Equal(t, before, attachedDevices(t)) })
	m := &mountedDriver{dir: t.TempDir()}
	m.socket = directorydriver.SocketIn(m.dir)
	d, err := directorydriver.Start(directorydriver.Config{Name: directorydriver.Name, Dir: m.dir, Socket: m.socket, Clock: clock.RealClock{}, Kubelet: m.dir})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	m.connection, err = grpc.NewClient("unix://"+m.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.connection.Close()) })
	m.controller, m.node = csi.NewControllerClient(m.connection), csi.NewNodeClient(m.connection)
	return m
}

func attachedDevices(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	return found
}

func (m *mountedDriver) createVolume(t *testing.T, name string, mode *csi.VolumeCapability, source *csi.VolumeContentSource) string {
	t.Helper()
	made, err := m.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeContentSource: source,
		VolumeCapabilities: []*csi.VolumeCapability{mode}, CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	require.NoError(t, err)
	return made.GetVolume().GetVolumeId()
}

// publishVolume publishes a volume until the test ends, and returns the target.
func (m *mountedDriver) publishVolume(t *testing.T, volume, name string, mode *csi.VolumeCapability, readOnly bool) (target string) {
	t.Helper()
	target = filepath.Join(m.dir, name)
	for range 2 { // a kubelet repeats calls
		_, err := m.node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: volume, TargetPath: target, VolumeCapability: mode, Readonly: readOnly})
		require.NoError(t, err)
	}
	t.Cleanup(func() { m.unpublishVolume(t, volume, target) })
	return target
}

func (m *mountedDriver) unpublishVolume(t *testing.T, volume, target string) {
	t.Helper()
	_, err := m.node.NodeUnpublishVolume(context.WithoutCancel(t.Context()), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: target})
	require.NoError(t, err)
	require.NoFileExists(t, target)
}

func TestSanityOfMounts(t *testing.T) {
	for _, access := range []string{"mount", "block"} {
		t.Run(access, func(t *testing.T) { runSanity(t, startMounted(t).socket, "--csi.testvolumeaccesstype="+access) })
	}
}

// Two Pods of a node share a volume, and one may only read it.
func TestADirectoryIsMounted(t *testing.T) {
	m := startMounted(t)
	volume := m.createVolume(t, "files", filesMode, nil)
	first, second := m.publishVolume(t, volume, "first", filesMode, false), m.publishVolume(t, volume, "second", filesMode, true)
	require.NoError(t, os.WriteFile(filepath.Join(first, "file"), []byte("text"), 0o600))
	text, err := os.ReadFile(filepath.Join(second, "file"))
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.ErrorContains(t, os.Remove(filepath.Join(second, "file")), "read-only")
	_, err = m.controller.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: volume})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
	m.unpublishVolume(t, volume, first)
	require.FileExists(t, filepath.Join(second, "file"), "the other target stays")
}

// What a Pod has written to a device and not synchronised is in a snapshot that is cut after it.
func TestABlockVolumeIsALoopDevice(t *testing.T) {
	m := startMounted(t)
	volume := m.createVolume(t, "disk", blockMode, nil)
	first, second := m.publishVolume(t, volume, "first", blockMode, false), m.publishVolume(t, volume, "second", blockMode, false)
	want := bytes.Repeat([]byte("block"), size/5+1)[:size]
	require.NoError(t, writeDevice(first, want))
	cut, err := m.controller.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: volume})
	require.NoError(t, err)
	m.unpublishVolume(t, volume, first)
	require.NoError(t, writeDevice(second, make([]byte, size)))
	source := &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: cut.GetSnapshot().GetSnapshotId()}}}
	restored := m.publishVolume(t, m.createVolume(t, "restored", blockMode, source), "restored", blockMode, false)
	have, err := os.ReadFile(restored)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, have))
	_, err = m.controller.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "other", VolumeContentSource: source, VolumeCapabilities: []*csi.VolumeCapability{filesMode},
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "the mode of a snapshot is that of its volume")
}

// writeDevice writes to a device, which os.WriteFile would truncate.
func writeDevice(path string, data []byte) error {
	device, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = device.Write(data)
	return errors.Join(err, device.Close())
}

// A kubelet that is killed leaves the loop device that it has put on that of the driver.
func TestDevicesOfAKilledKubeletAreReleased(t *testing.T) {
	m := startMounted(t)
	target := m.publishVolume(t, m.createVolume(t, "disk", blockMode, nil), "target", blockMode, false)
	before := attachedDevices(t)
	output, err := exec.CommandContext(t.Context(), "losetup", "--find", target).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Len(t, attachedDevices(t), len(before)+1)
	require.NoError(t, directorydriver.ReleaseDevices(m.dir))
	require.Equal(t, before, attachedDevices(t), "the driver's own is in use")
}

func TestTheDriverIsRegistered(t *testing.T) {
	m := startMounted(t)
	connection, err := grpc.NewClient("unix://"+filepath.Join(m.dir, "plugins_registry", directorydriver.Name+"-reg.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	info, err := registerv1.NewRegistrationClient(connection).GetInfo(t.Context(), &registerv1.InfoRequest{})
	require.NoError(t, err)
	require.Equal(t, []string{registerv1.CSIPlugin, directorydriver.Name, m.socket}, []string{info.GetType(), info.GetName(), info.GetEndpoint()})
}
