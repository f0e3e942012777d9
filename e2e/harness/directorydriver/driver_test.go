package directorydriver_test

import (
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
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/e2e/harness/directorydriver"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func startDriver(t *testing.T) (d *directorydriver.Driver, socket string) {
	t.Helper()
	dir := t.TempDir()
	socket = filepath.Join(dir, "csi.sock")
	d, err := directorydriver.Start(directorydriver.Config{Name: "directory.example.com", Dir: dir, Socket: socket, Clock: clock.RealClock{}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, socket
}

// The requirements of CSI on drivers, by the test suite of Kubernetes CSI.
func TestSanity(t *testing.T) {
	_, socket := startDriver(t)
	runSanity(t, socket)
}

// runSanity runs the suite against the driver at socket. csi-sanity waits a minute for a change of a
// connection that was ready before it looked, and fails the spec: a second attempt is allowed.
func runSanity(t *testing.T, socket string, flags ...string) {
	t.Helper()
	suite, err := testbed.Binary("csi-sanity")
	require.NoError(t, err)
	dir := t.TempDir()
	flags = append(flags, "--ginkgo.no-color", "--ginkgo.flake-attempts=2", "--csi.endpoint=unix://"+socket,
		"--csi.mountdir="+filepath.Join(dir, "target"), "--csi.stagingdir="+filepath.Join(dir, "staging"))
	output, err := exec.CommandContext(t.Context(), suite, flags...).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), " 48 Passed | 0 Failed ", "a capability that the driver does not report is not tested")
}

func connectDriver(t *testing.T, socket string) csi.ControllerClient {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	return csi.NewControllerClient(connection)
}

func createVolume(t *testing.T, c csi.ControllerClient, name string, source *csi.VolumeContentSource) string {
	t.Helper()
	made, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, VolumeContentSource: source, VolumeCapabilities: []*csi.VolumeCapability{{}}})
	require.NoError(t, err)
	return made.GetVolume().GetVolumeId()
}

func replaceFile(t *testing.T, d *directorydriver.Driver, volume, content string) (was string) {
	t.Helper()
	require.NoError(t, d.Write(volume, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, "file"))
		if was = string(text); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o600)
	}))
	return was
}

func TestASnapshotHasTheFilesOfTheCut(t *testing.T) {
	d, socket := startDriver(t)
	c := connectDriver(t, socket)
	first := createVolume(t, c, "first", nil)
	replaceFile(t, d, first, "before")
	cut, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: first})
	require.NoError(t, err)
	require.True(t, cut.GetSnapshot().GetReadyToUse())
	replaceFile(t, d, first, "after")
	second := createVolume(t, c, "second", &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: cut.GetSnapshot().GetSnapshotId()}}})
	require.Equal(t, "before", replaceFile(t, d, second, "own"))
	require.Equal(t, "after", replaceFile(t, d, first, ""))
	require.Len(t, d.Snapshots(), 1)
	text, err := os.ReadFile(filepath.Join(d.Snapshots()[0].Dir, "file"))
	require.NoError(t, err)
	require.Equal(t, "before", string(text))
}

func TestBehaviour(t *testing.T) {
	d, socket := startDriver(t)
	c := connectDriver(t, socket)
	volume := createVolume(t, c, "v", nil)
	request := &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: volume}

	d.Behave(volume, directorydriver.Behaviour{Err: errors.New("out of space")})
	_, err := c.CreateSnapshot(t.Context(), request)
	require.ErrorContains(t, err, "out of space")
	require.Zero(t, d.Taken())

	d.Behave(volume, directorydriver.Behaviour{Hang: true})
	given, up := context.WithCancel(t.Context())
	answered := make(chan error, 2)
	go func() { _, err := c.CreateSnapshot(given, request); answered <- err }()
	up()
	require.Equal(t, codes.Canceled, status.Code(<-answered))
	go func() { _, err := c.CreateSnapshot(t.Context(), request); answered <- err }()
	d.Behave(volume, directorydriver.Behaviour{NotReady: true})
	require.NoError(t, <-answered)
	require.Equal(t, 1, d.Taken())
	again, err := c.CreateSnapshot(t.Context(), request)
	require.NoError(t, err)
	require.False(t, again.GetSnapshot().GetReadyToUse())

	d.Refuse(errors.New("in use"))
	removal := &csi.DeleteSnapshotRequest{SnapshotId: again.GetSnapshot().GetSnapshotId()}
	_, err = c.DeleteSnapshot(t.Context(), removal)
	require.ErrorContains(t, err, "in use")
	d.Refuse(nil)
	_, err = c.DeleteSnapshot(t.Context(), removal)
	require.NoError(t, err)
	require.Empty(t, d.Snapshots())
	require.Equal(t, 1, d.Taken(), "a repeated request takes no second")
}
