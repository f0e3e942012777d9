package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

// fileVolumes has a volume with some files in backup "done".
type fileVolumes struct {
	volumev1.UnimplementedVolumeServiceServer
}

var listedFiles = []*volumev1.File{
	{Name: "a\nb", Type: volumev1.FileType_FILE_TYPE_FILE, Mode: 0o4755, Uid: 1000, Gid: 2000, Size: 12, Modified: now.UnixNano()},
	{Name: "etc", Type: volumev1.FileType_FILE_TYPE_DIRECTORY, Mode: 0o755, Size: 4096, Modified: now.Add(-time.Hour).UnixNano()},
	{Name: "link", Type: volumev1.FileType_FILE_TYPE_SYMLINK, Mode: 0o777, Modified: now.UnixNano()},
}

func (fileVolumes) ListFiles(req *volumev1.ListFilesRequest, stream grpc.ServerStreamingServer[volumev1.ListFilesResponse]) error {
	v := req.GetVolume()
	switch {
	case req.GetBackup() == "empty":
		return nil
	case req.GetBackup() != "done":
		return fmt.Errorf("backup %q: %w", req.GetBackup(), errgrpc.ErrNotFound)
	case v.GetNamespace() == "steered":
		return errgrpc.Field("volume", "several match: a\x1b[2J in namespace steered\n\tb")
	case req.GetPath() == "":
		for _, m := range []*volumev1.Volume{
			{Namespace: "shop", Claim: "data", Pod: "web-0", PodVolume: "data", SnapshotId: "854e", Size: 4096},
			{Namespace: "shop", Pod: "web-0", PodVolume: "scratch", SnapshotId: "0d2f"},
		} {
			if err := stream.Send(&volumev1.ListFilesResponse{Volume: m}); err != nil {
				return err
			}
		}
		return nil
	case v.GetClaim() != "data" && v.GetPod()+"/"+v.GetPodVolume() != "web-0/scratch":
		return errgrpc.Field("volume", "several match, name one with its namespace: data in namespace a, data in namespace b")
	}
	for _, f := range listedFiles {
		if req.GetPath() == "/" || req.GetPath() == f.GetName() {
			if err := stream.Send(&volumev1.ListFilesResponse{File: f}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (fileVolumes) ReadFile(req *volumev1.ReadFileRequest, stream grpc.ServerStreamingServer[volumev1.ReadFileResponse]) error {
	parts := []string{"con", "tent\n"}
	switch req.GetPath() {
	case "none":
		return fmt.Errorf("%q in the volume: %w", req.GetPath(), errgrpc.ErrNotFound)
	case "etc/cut":
		parts = parts[:1]
	case "etc/long":
		parts = append(parts, "more")
	case "etc/empty":
		parts = nil
	}
	size := int64(8)
	if parts == nil {
		size = 0
	}
	if err := stream.Send(&volumev1.ReadFileResponse{File: &volumev1.File{Name: "f", Size: size}}); err != nil {
		return err
	}
	for _, data := range parts {
		if err := stream.Send(&volumev1.ReadFileResponse{Data: []byte(data)}); err != nil {
			return err
		}
	}
	return nil
}

func runFiles(t *testing.T, args ...string) clitest.Result {
	t.Helper()
	c := newTestCluster(t, "backup")
	clock := clocktesting.NewFakeClock(now)
	c.Clock = clock
	c.ServeVolumes(t, fileVolumes{}, newManifests(clock))
	return c.Run(t.Context(), "", args...)
}

// TestFilesOfVolumes compares what `backup files` prints with testdata/files.golden. UPDATE_GOLDEN=1 writes the file
// anew.
func TestFilesOfVolumes(t *testing.T) {
	golden, err := filepath.Abs(filepath.Join("testdata", "files.golden"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	var got strings.Builder
	for _, line := range []string{
		"files --help", "files cat --help", "files download --help", "files", "files a b c d",
		"files done", "files done -o json", "files empty", "files absent", "files done --volume-address nowhere",
		"files done data -n shop", "files done web-0/scratch -o yaml", "files done data etc", "files done other",
		"files cat done data", "files cat done data etc/f", "files cat done data etc/empty", "files cat done data none", "files cat done data etc/cut", "files cat done data etc/long",
		"files download done data etc/f -n shop", "files download done data etc/f", "files download done data etc/f --force -o f", "files download done data etc/cut",
		"__complete files |d", "__complete files done |", "__complete files cat done |da", "__complete files done -n other |", "__complete files done data |", "__complete files done -n |",
	} {
		command, typed, completes := strings.Cut(line, "|")
		args := append([]string{"backup"}, strings.Fields(command)...)
		if completes {
			args = append(append([]string{"__complete", "backup"}, args[2:]...), typed)
		}
		result := runFiles(t, args...)
		fmt.Fprintf(&got, "$ backup %s\n%s--- stderr\n%s--- exit %d\n\n", line, result.Out, result.Err, result.Code)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
	saved, err := filepath.Glob("*")
	require.NoError(t, err)
	require.Equal(t, []string{"f"}, saved, "nothing is left of a file that was cut")
	content, err := os.ReadFile("f")
	require.NoError(t, err)
	require.Equal(t, "content\n", string(content))
}

// An error names volumes as the bucket does, which whoever writes to it may call anything.
func TestErrorsDoNotSteerTheTerminal(t *testing.T) {
	result := runFiles(t, "backup", "files", "done", "data", "-n", "steered")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Err, "several match: a\uFFFD[2J in namespace steered\n\tb")
}
