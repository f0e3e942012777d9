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
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// verifications finds faults in the backup "partly" alone.
type verifications struct {
	manifestv1.UnimplementedManifestServiceServer
	clock *clocktesting.FakeClock // steps before progress
}

func (v *verifications) VerifyBackup(req *manifestv1.VerifyBackupRequest, stream grpc.ServerStreamingServer[manifestv1.VerifyBackupResponse]) error {
	result := &manifestv1.VerifyResult{Objects: 7, Bytes: 4096}
	switch req.GetBackup() {
	case "absent":
		return fmt.Errorf("backup %q: %w", req.GetBackup(), errgrpc.ErrNotFound)
	case "cut":
		return nil
	case "foreign":
		result.Rebuilt = true
	case "partly":
		v.clock.Step(2 * time.Second)
		progress := &manifestv1.VerifyProgress{Bytes: 1024, TotalBytes: 4096}
		if err := stream.Send(&manifestv1.VerifyBackupResponse{Event: &manifestv1.VerifyBackupResponse_Progress{Progress: progress}}); err != nil {
			return err
		}
		result.Found, result.Faults = 1001, []*manifestv1.VerifyFault{
			{Kind: manifestv1.FaultKind_FAULT_KIND_UNREADABLE, Detail: "bytes 100 to 200 of the tarball: corrupt"},
			{Kind: manifestv1.FaultKind_FAULT_KIND_MISSING, Path: "resources/pods/namespaces/web/a.json", Detail: "is not in the tarball"},
		}
	}
	return stream.Send(&manifestv1.VerifyBackupResponse{Event: &manifestv1.VerifyBackupResponse_Result{Result: result}})
}

// TestVerificationOfBackups compares what `backup verify` prints with testdata/verify.golden. UPDATE_GOLDEN=1
// writes the file anew.
func TestVerificationOfBackups(t *testing.T) {
	var got strings.Builder
	for _, line := range []string{
		"verify", "verify done", "verify foreign", "verify partly", "verify partly -o json", "verify done -o yaml", "verify absent", "verify cut", "verify done --manifest-address nowhere",
	} {
		c := newTestCluster(t, "backup")
		clock := clocktesting.NewFakeClock(now)
		c.Clock = clock
		c.ServeManifests(t, &verifications{clock: clock})
		result := c.Run(t.Context(), "", append([]string{"backup"}, strings.Fields(line)...)...)
		fmt.Fprintf(&got, "$ backup %s\n%s--- stderr\n%s--- exit %d\n\n", line, result.Out, result.Err, result.Code)
	}
	golden := filepath.Join("testdata", "verify.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
