package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	planv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/plan/v1"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// checks refuses the backup "bad", and completes others by a location.
type checks struct {
	queuev1.UnimplementedQueueServiceServer
}

func (checks) CheckBackup(_ context.Context, req *queuev1.CheckBackupRequest) (*queuev1.CheckBackupResponse, error) {
	if req.GetName() == "bad" {
		return nil, errgrpc.Field("spec.resourcePolicy", "not supported by Holdfast yet")
	}
	spec := req.GetSpec()
	spec.Fields["storageLocation"] = structpb.NewStringValue("eu")
	resp := &queuev1.CheckBackupResponse{Backup: spec, Namespaces: []string{"web"}}
	if req.GetName() == "busy" {
		resp.Message = "backup other runs on namespace web"
	}
	return resp, nil
}

// backupPlans has a plan of two objects.
type backupPlans struct {
	backupv1.UnimplementedBackupServiceServer
}

func (backupPlans) PlanBackup(req *backupv1.PlanBackupRequest, stream grpc.ServerStreamingServer[backupv1.PlanBackupResponse]) error {
	if strings.Join(req.GetNamespaces(), ",") != "web" {
		return fmt.Errorf("namespaces %v: %w", req.GetNamespaces(), errgrpc.ErrNotFound)
	}
	send := func(r *backupv1.PlanBackupResponse) error { return stream.Send(r) }
	if req.GetObjects() {
		for _, row := range []*planv1.PlannedObject{
			{Version: "v1", Kind: "PersistentVolumeClaim", Namespace: "web", Name: "data", Reasons: []string{"volume data would be taken: CSI snapshot"}, Unknown: []string{"action v.io/x may change the object and add others"}},
			{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "web", Name: "front"},
		} {
			if err := send(&backupv1.PlanBackupResponse{Content: &backupv1.PlanBackupResponse_Object{Object: row}}); err != nil {
				return err
			}
		}
	}
	s := &backupv1.PlanSummary{Plan: &planv1.Plan{Id: "20260304-1", Expires: timestamppb.New(now.Add(time.Hour)), Spec: req.GetBackup(), Messages: req.GetMessages(), Counts: map[string]int64{"store": 2}}, HookedPods: 1,
		Kinds:            []*backupv1.PlanCount{{Name: "apps/v1/Deployment", Objects: 1, LeftOut: 4}, {Name: "v1/PersistentVolumeClaim", Objects: 1, Bytes: ptr.To[int64](512)}},
		Namespaces:       []*backupv1.PlanCount{{Objects: 1}, {Name: "web", Objects: 2}},
		Volumes:          []*backupv1.PlanVolume{{Volume: "pv1", Claim: "web/data", Taken: true, Reason: "CSI snapshot"}, {Claim: "web/tmp", Reason: "the claim is not bound"}},
		ActionsNotCalled: []string{"v.io/x"}, SizesFrom: "nightly-1"}
	if s.Plan.Spec.GetFields()["snapshotVolumes"].GetBoolValue() {
		s.Plan.Id, s.Plan.Unstored = "", "the bucket is away"
	}
	return send(&backupv1.PlanBackupResponse{Content: &backupv1.PlanBackupResponse_Summary{Summary: s}})
}

// TestPlansOfBackups compares what `backup plan` prints with testdata/backupplan.golden. UPDATE_GOLDEN=1 writes the file anew.
func TestPlansOfBackups(t *testing.T) {
	var got strings.Builder
	for _, line := range []string{
		"plan", "plan busy --all", "plan bad", "plan n --snapshot-volumes", "plan n --all -o json", "plan n -o yaml", "plan n --selector a=b --or-selector c=d", "plan n --wait", "plan n --backup-address nowhere", "plan --from-schedule absent",
	} {
		c := newTestCluster(t, "backup")
		c.ServeBackups(t, checks{}, backupPlans{})
		result := c.Run(t.Context(), "", append([]string{"backup"}, strings.Fields(line)...)...)
		fmt.Fprintf(&got, "$ backup %s\n%s--- stderr\n%s--- exit %d\n\n", line, result.Out, result.Err, result.Code)
	}
	golden := filepath.Join("testdata", "backupplan.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
