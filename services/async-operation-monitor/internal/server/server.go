// Package server answers operation.v1.OperationMonitorService from the bucket: any replica gives
// the same answer.
package server

import (
	"cmp"
	"context"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

const defaultPage = 100

// Operations finds the operations of a job; operations.Source is one.
type Operations interface {
	OfBackup(ctx context.Context, name string) ([]itemoperation.Operation, error)
	OfRestore(ctx context.Context, name string) ([]itemoperation.Operation, error)
}

// Server implements operation.v1.OperationMonitorService.
type Server struct {
	operationv1.UnimplementedOperationMonitorServiceServer
	Operations Operations
}

// ListOperations implements operation.v1.OperationMonitorService.
func (s *Server) ListOperations(ctx context.Context, req *operationv1.ListOperationsRequest) (*operationv1.ListOperationsResponse, error) {
	first, err := grpcserver.PageOffset(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	var list []itemoperation.Operation
	switch owner := req.GetOwner().(type) {
	case *operationv1.ListOperationsRequest_Backup:
		list, err = s.Operations.OfBackup(ctx, owner.Backup)
	case *operationv1.ListOperationsRequest_Restore:
		list, err = s.Operations.OfRestore(ctx, owner.Restore)
	default:
		return nil, errgrpc.Field("owner", "must be a backup or a restore")
	}
	if err != nil {
		return nil, err
	}
	first = min(first, len(list))
	last := min(first+cmp.Or(int(req.GetPageSize()), defaultPage), len(list))
	resp := &operationv1.ListOperationsResponse{}
	for i := range list[first:last] {
		resp.Operations = append(resp.Operations, toProto(&list[first+i]))
	}
	if last < len(list) {
		resp.NextPageToken = strconv.Itoa(last)
	}
	return resp, nil
}

var phases = map[string]operationv1.OperationPhase{
	itemoperation.PhaseNew:        operationv1.OperationPhase_OPERATION_PHASE_NEW,
	itemoperation.PhaseInProgress: operationv1.OperationPhase_OPERATION_PHASE_IN_PROGRESS,
	itemoperation.PhaseCompleted:  operationv1.OperationPhase_OPERATION_PHASE_COMPLETED,
	itemoperation.PhaseFailed:     operationv1.OperationPhase_OPERATION_PHASE_FAILED,
}

func toProto(o *itemoperation.Operation) *operationv1.Operation {
	return &operationv1.Operation{
		Id: o.Spec.ID, Action: o.Spec.Action(), GroupResource: o.Spec.Resource.GroupResource(),
		Namespace: o.Spec.Resource.Namespace, Name: o.Spec.Resource.Name, Phase: phases[o.Status.Phase], Error: o.Status.Error,
		Completed: o.Status.Completed, Total: o.Status.Total, Units: o.Status.Units, Description: o.Status.Description,
		CreateTime: stamp(o.Status.Created), StartTime: stamp(o.Status.Started), UpdateTime: stamp(o.Status.Updated),
	}
}

func stamp(t *metav1.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.Time)
}
