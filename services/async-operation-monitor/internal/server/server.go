// Package server answers operation.v1.OperationMonitorService from the bucket and the actions: any
// replica can.
package server

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

const defaultPage = 100

// Operations reads and cancels the operations of jobs; Source is one.
type Operations interface {
	OfBackup(ctx context.Context, name string) ([]itemoperation.Operation, error)
	OfRestore(ctx context.Context, name string) ([]itemoperation.Operation, error)
	Watch(ctx context.Context, owner Owner, send func(State) error) error
	Cancel(ctx context.Context, owner Owner, target Target, reason string) (Cancelled, error)
	Logs(ctx context.Context, owner Owner, target Target, since time.Time, follow bool, send func(action.LogLine) error) error
}

// Server implements operation.v1.OperationMonitorService.
type Server struct {
	operationv1.UnimplementedOperationMonitorServiceServer
	Operations Operations
	Clock      clock.PassiveClock
}

// ListOperations implements operation.v1.OperationMonitorService.
func (s *Server) ListOperations(ctx context.Context, req *operationv1.ListOperationsRequest) (*operationv1.ListOperationsResponse, error) {
	first, err := grpcserver.PageOffset(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	owner, err := ownerOf(req.GetBackup(), req.GetRestore())
	if err != nil {
		return nil, err
	}
	of := s.Operations.OfBackup
	if owner.Kind == operation.KindRestore {
		of = s.Operations.OfRestore
	}
	list, err := of(ctx, owner.Name)
	if err != nil {
		return nil, err
	}
	first = min(first, len(list))
	last := min(first+cmp.Or(int(req.GetPageSize()), defaultPage), len(list))
	resp := &operationv1.ListOperationsResponse{Operations: wireOperations(list[first:last])}
	if last < len(list) {
		resp.NextPageToken = strconv.Itoa(last)
	}
	return resp, nil
}

// ownerOf is the job that a request names.
func ownerOf(backup, restore string) (Owner, error) {
	switch {
	case backup != "":
		return Owner{Kind: operation.KindBackup, Name: backup}, nil
	case restore != "":
		return Owner{Kind: operation.KindRestore, Name: restore}, nil
	}
	return Owner{}, errgrpc.Field("owner", "must be a backup or a restore")
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
		CreateTime: timestampOrNil(o.Status.Created), StartTime: timestampOrNil(o.Status.Started), UpdateTime: timestampOrNil(o.Status.Updated),
	}
}

func timestampOrNil(t *metav1.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.Time.Truncate(time.Second)) // as in the file of operations
}
