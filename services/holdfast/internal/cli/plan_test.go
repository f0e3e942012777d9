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
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	planv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/plan/v1"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
)

// plans answers with one plan, whatever is asked for.
type plans struct {
	restorev1.UnimplementedRestoreServiceServer
	clock *clocktesting.FakeClock // steps before each message
	asked *restorev1.PlanRestoreRequest
}

func newPlan(spec *structpb.Struct) *planv1.Plan {
	return &planv1.Plan{
		Id: "20260304-050607-q4ztk2", Kind: "Restore", Backup: "first", Created: timestamppb.New(now), Expires: timestamppb.New(now.Add(7 * 24 * time.Hour)),
		Spec: spec, Annotations: map[string]string{"holdfast.io/order": "owners"}, Counts: map[string]int64{"create": 1, "conflict": 1, "error": 1, "update": 1},
		LeftOut: map[string]int64{"configmaps": 3, "deployments.apps": 1}, Messages: []string{"spec.includedNamespaces: the backup holds no namespace \"db\""},
	}
}

func (p *plans) PlanRestore(req *restorev1.PlanRestoreRequest, stream grpc.ServerStreamingServer[restorev1.PlanRestoreResponse]) error {
	p.asked = req
	if req.GetServerDryRun() {
		return errgrpc.Field("spec.backupName", "backup %q is being deleted", "first")
	}
	p.clock.Step(2 * time.Second)
	parts := []*restorev1.PlanRestoreResponse{
		{Part: &restorev1.PlanRestoreResponse_Progress{Progress: &restorev1.PlanProgress{TotalItems: 4, ItemsPlanned: 2}}},
		{Part: &restorev1.PlanRestoreResponse_Plan{Plan: newPlan(req.GetSpec())}},
	}
	if req.GetSpec().GetFields()["restorePVs"] != nil {
		parts[1].GetPlan().Unstored = "location \"eu\": read-only"
	}
	for _, o := range []*planv1.PlannedObject{
		{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "settings", Action: "conflict", Order: 1, Fields: []string{"data.a", "data.b"}, Reasons: []string{"after Namespace shop", "could not restore"}},
		{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "db", Action: "create", Order: 2, TargetNamespace: "shop-copy", Unknown: []string{"action a/b is not called"}},
		{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Action: "update", Order: 3, Fields: []string{"spec.replicas"}},
		{Group: "g.io", Version: "v1", Kind: "Widget", Name: "w", Action: "error", Order: 4, Reasons: []string{"the cluster does not serve widgets.g.io"}},
	} {
		parts = append(parts, &restorev1.PlanRestoreResponse{Part: &restorev1.PlanRestoreResponse_Object{Object: o}})
	}
	for _, part := range parts {
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	return nil
}

func (p *plans) GetPlan(req *restorev1.GetPlanRequest, stream grpc.ServerStreamingServer[restorev1.GetPlanResponse]) error {
	if req.GetId() == "absent" {
		return fmt.Errorf("plan %q: %w", req.GetId(), errgrpc.ErrNotFound)
	}
	spec, err := structpb.NewStruct(map[string]any{"backupName": "first", "existingResourcePolicy": "update", "includedNamespaces": []any{"shop"}})
	if err != nil {
		return err
	}
	return stream.Send(&restorev1.GetPlanResponse{Part: &restorev1.GetPlanResponse_Plan{Plan: newPlan(spec)}})
}

// TestPlansOfRestores compares what `restore plan` and `restore create --from-plan` print with testdata/plan.golden.
// UPDATE_GOLDEN=1 writes the file anew.
func TestPlansOfRestores(t *testing.T) {
	var got strings.Builder
	for _, line := range []string{
		"plan --help", "plan", "plan --from-backup absent", "plan --from-backup first", "plan --from-backup first --all", "plan --from-backup first -o wide", "plan --from-backup first -o yaml",
		"plan --from-backup first -o jsonpath={.counts.create}", "plan --from-backup first --restore-volumes=false", "plan --from-backup first --server-dry-run", "plan first",
		"create --from-plan 20260304-050607-q4ztk2 --strict -o yaml", "create r --from-backup first --strict", "create r --from-plan 20260304-050607-q4ztk2 --from-backup first --order owners", "create --from-plan absent",
		"create r --from-plan 20260304-050607-q4ztk2",
	} {
		c := newTestCluster(t, "restore")
		clock := clocktesting.NewFakeClock(now)
		c.Clock = clock
		c.ServeRestores(t, &plans{clock: clock})
		result := c.Run(t.Context(), "", append([]string{"restore"}, strings.Fields(line)...)...)
		fmt.Fprintf(&got, "$ restore %s\n%s--- stderr\n%s--- exit %d\n\n", line, result.Out, result.Err, result.Code)
	}
	golden := filepath.Join("testdata", "plan.golden")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
