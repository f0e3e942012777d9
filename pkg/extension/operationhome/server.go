package operationhome

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

// Processes are the plugins' processes of this instance; pluginhost.Operations is one.
type Processes interface {
	action.Operations
	// Alive reports whether the process with this start ID is one of these and runs.
	Alive(process string) bool
	// Forget lets the process of an operation end that is no longer polled.
	Forget(op action.Operation)
}

// Server implements operation.v1.OperationService. Safe for concurrent use.
type Server struct {
	operationv1.UnimplementedOperationServiceServer
	// Instance is the name of this instance's Lease.
	Instance  string
	Processes Processes
}

// findOperation returns the operation, unless it does not live here.
func (s *Server) findOperation(o *operationv1.InProcessOperation) (action.Operation, error) {
	if err := s.checkInstance("operation.expected_instance_id", o.GetExpectedInstanceId()); err != nil {
		return action.Operation{}, err
	}
	return action.Operation{Kind: o.GetKind(), Action: o.GetAction(), ID: o.GetOperationId()}, s.checkAlive(o)
}

// checkInstance refuses a request for another instance.
func (s *Server) checkInstance(field, instance string) error {
	if instance == s.Instance {
		return nil
	}
	return errgrpc.WithReason(fmt.Errorf("%s: this is instance %s: %w", field, s.Instance, errgrpc.ErrPrecondition), reasonOtherInstance, nil)
}

func (s *Server) checkAlive(o *operationv1.InProcessOperation) error {
	if s.Processes.Alive(o.GetProcessId()) {
		return nil
	}
	return errgrpc.WithReason(fmt.Errorf("plugin process %.64q of instance %s: %w", o.GetProcessId(), s.Instance, errgrpc.ErrNotFound), reasonProcessGone, nil)
}

// failedCallError is the error of a call. A process that died meanwhile is why it failed, whatever the call
// returned: another process of the binary may have answered.
func (s *Server) failedCallError(o *operationv1.InProcessOperation, err error) error {
	if err == nil {
		return nil
	}
	if gone := s.checkAlive(o); gone != nil {
		return gone
	}
	return statusOfRefusal(err)
}

func statusOfRefusal(err error) error {
	switch {
	case errors.Is(err, action.ErrUnknownOperation):
		return errgrpc.WithReason(fmt.Errorf("%w: %w", errgrpc.ErrNotFound, err), reasonOperationUnknown, nil)
	case errors.Is(err, action.ErrUnknownAction):
		return errgrpc.WithReason(fmt.Errorf("%w: %w", errgrpc.ErrNotFound, err), reasonActionUnknown, nil)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fmt.Errorf("%w: %w", errgrpc.ErrUnavailable, err)
}

// GetProgress implements operation.v1.OperationService.
func (s *Server) GetProgress(ctx context.Context, req *operationv1.GetProgressRequest) (*operationv1.GetProgressResponse, error) {
	op, err := s.findOperation(req.GetOperation())
	if err != nil {
		return nil, err
	}
	p, err := s.Processes.Progress(ctx, op, req.GetJob())
	if err != nil {
		return nil, s.failedCallError(req.GetOperation(), err)
	}
	return &operationv1.GetProgressResponse{
		Done: p.Done, Error: p.Err, Completed: p.Completed, Total: p.Total, Units: p.Units, Description: p.Description,
		StartTime: timestampOrNil(p.Started), UpdateTime: timestampOrNil(p.Updated),
	}, nil
}

// Cancel implements operation.v1.OperationService.
func (s *Server) Cancel(ctx context.Context, req *operationv1.CancelRequest) (*operationv1.CancelResponse, error) {
	op, err := s.findOperation(req.GetOperation())
	if err != nil {
		return nil, err
	}
	accepted, err := s.Processes.Cancel(ctx, op, req.GetJob(), req.GetGrace().AsDuration())
	if err != nil {
		return nil, s.failedCallError(req.GetOperation(), err)
	}
	return &operationv1.CancelResponse{Accepted: accepted}, nil
}

// StreamLogs implements operation.v1.OperationService.
func (s *Server) StreamLogs(req *operationv1.StreamLogsRequest, stream grpc.ServerStreamingServer[operationv1.StreamLogsResponse]) error {
	op, err := s.findOperation(req.GetOperation())
	if err != nil {
		return err
	}
	var since time.Time
	if req.GetSince() != nil {
		since = req.GetSince().AsTime()
	}
	for line, err := range s.Processes.Logs(stream.Context(), op, req.GetJob(), since, req.GetFollow()) {
		if err != nil {
			return s.failedCallError(req.GetOperation(), err)
		}
		err = stream.Send(&operationv1.StreamLogsResponse{Line: &operationv1.StreamOperationLogsResponse{
			Time: timestampOrNil(line.Time), Level: line.Level, Message: line.Message, Fields: line.Fields,
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// Forget implements operation.v1.OperationService.
func (s *Server) Forget(_ context.Context, req *operationv1.ForgetRequest) (*operationv1.ForgetResponse, error) {
	op, err := s.findOperation(req.GetOperation())
	if err != nil {
		return nil, err
	}
	s.Processes.Forget(op)
	return &operationv1.ForgetResponse{}, nil
}

func timestampOrNil(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
