package app

import (
	"context"
	"iter"
	"sync"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/job"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// planner makes and reads plans; job.Kind is one.
type planner interface {
	PlanRestore(ctx context.Context, req *job.PlanRequest) (*job.PlannedRestore, error)
	ReadPlan(ctx context.Context, id string, do func(*storedplan.Header, iter.Seq2[*storedplan.Row, error]) error) error
}

// PlanRestore implements RestoreService.
func (s *restoreServer) PlanRestore(req *restorev1.PlanRestoreRequest, stream grpc.ServerStreamingServer[restorev1.PlanRestoreResponse]) error {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: "dry-run", Annotations: req.GetAnnotations()}}
	if err := validate.DecodeSpec(req.GetSpec(), &r.Spec); err != nil {
		return err
	}
	var sending sync.Mutex // progress comes from another goroutine
	planned, err := s.plans.PlanRestore(stream.Context(), &job.PlanRequest{
		Restore: r, ServerDryRun: req.GetServerDryRun(),
		Progress: func(c outcome.Counts) {
			sending.Lock()
			defer sending.Unlock()
			progress := &restorev1.PlanProgress{TotalItems: int64(c.Total), ItemsPlanned: int64(c.Done)}
			_ = stream.Send(&restorev1.PlanRestoreResponse{Part: &restorev1.PlanRestoreResponse_Progress{Progress: progress}}) // ctx ends with the stream
		},
	})
	if err != nil {
		return err
	}
	defer planned.Close() //nolint:errcheck // the rows were sent, or nobody waits for them
	head, err := planned.Header.Proto(planned.Unstored)
	if err != nil {
		return err
	}
	sending.Lock()
	defer sending.Unlock()
	if err := stream.Send(&restorev1.PlanRestoreResponse{Part: &restorev1.PlanRestoreResponse_Plan{Plan: head}}); err != nil || !req.GetObjects() {
		return err
	}
	return sendRows(planned.Rows(), func(row *storedplan.Row) error {
		return stream.Send(&restorev1.PlanRestoreResponse{Part: &restorev1.PlanRestoreResponse_Object{Object: row.Proto()}})
	})
}

// GetPlan implements RestoreService.
func (s *restoreServer) GetPlan(req *restorev1.GetPlanRequest, stream grpc.ServerStreamingServer[restorev1.GetPlanResponse]) error {
	return s.plans.ReadPlan(stream.Context(), req.GetId(), func(h *storedplan.Header, rows iter.Seq2[*storedplan.Row, error]) error {
		head, err := h.Proto(nil)
		if err != nil {
			return err
		}
		if err := stream.Send(&restorev1.GetPlanResponse{Part: &restorev1.GetPlanResponse_Plan{Plan: head}}); err != nil || !req.GetObjects() {
			return err
		}
		return sendRows(rows, func(row *storedplan.Row) error {
			return stream.Send(&restorev1.GetPlanResponse{Part: &restorev1.GetPlanResponse_Object{Object: row.Proto()}})
		})
	})
}

func sendRows(rows iter.Seq2[*storedplan.Row, error], send func(*storedplan.Row) error) error {
	for row, err := range rows {
		if err != nil {
			return err
		}
		if err := send(row); err != nil {
			return err
		}
	}
	return nil
}
