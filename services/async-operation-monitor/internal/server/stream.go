package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-io/holdfast/pkg/archive/itemoperation"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	operationv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
)

const (
	// maxChanged bounds the operations in one message of a watch.
	maxChanged = 500
	// maxMeant bounds the operations in the answer to a request to cancel.
	maxMeant = 1000
	// maxRequestedBy bounds, in bytes, the name that is recorded with each operation.
	maxRequestedBy = 256
)

// WatchOperations implements operation.v1.OperationMonitorService.
func (s *Server) WatchOperations(req *operationv1.WatchOperationsRequest, stream grpc.ServerStreamingServer[operationv1.WatchOperationsResponse]) error {
	owner, err := ownerOf(req.GetBackup(), req.GetRestore())
	if err != nil {
		return err
	}
	w := &streamState{server: s, send: stream.Send, sent: map[operationKey]*operationv1.Operation{}}
	return s.Operations.Watch(stream.Context(), owner, w.sendChanges)
}

// operationKey names an operation of a job.
type operationKey struct{ action, id, resource, namespace, name string }

func newOperationKey(o *operationv1.Operation) operationKey {
	return operationKey{o.GetAction(), o.GetId(), o.GetGroupResource(), o.GetNamespace(), o.GetName()}
}

// streamState keeps what one stream has sent.
type streamState struct {
	server *Server
	send   func(*operationv1.WatchOperationsResponse) error
	sent   map[operationKey]*operationv1.Operation
	phase  string
	begun  bool
}

// sendChanges sends what differs from the state before; nothing where nothing does.
func (w *streamState) sendChanges(now State) error {
	var changed []*operationv1.Operation
	for i := range now.Operations {
		o := toProto(&now.Operations[i])
		if k := newOperationKey(o); !proto.Equal(o, w.sent[k]) {
			w.sent[k] = o
			changed = append(changed, o)
		}
	}
	if w.begun && len(changed) == 0 && w.phase == now.Phase {
		return nil
	}
	w.begun, w.phase = true, now.Phase
	read := timestamppb.New(w.server.Clock.Now())
	chunks := slices.Collect(slices.Chunk(changed, maxChanged))
	if len(chunks) == 0 {
		chunks = [][]*operationv1.Operation{nil}
	}
	for i, chunk := range chunks {
		err := w.send(&operationv1.WatchOperationsResponse{Changed: chunk, JobPhase: now.Phase, Complete: i == len(chunks)-1, ReadTime: read})
		if err != nil {
			return err
		}
	}
	return nil
}

// CancelOperation implements operation.v1.OperationMonitorService.
func (s *Server) CancelOperation(ctx context.Context, req *operationv1.CancelOperationRequest) (*operationv1.CancelOperationResponse, error) {
	owner, err := ownerOf(req.GetBackup(), req.GetRestore())
	if err != nil {
		return nil, err
	}
	target := Target{ID: req.GetOperation().GetId(), Action: req.GetOperation().GetAction()}
	if target.ID == "" && !req.GetAll() {
		return nil, errgrpc.Field("target", "must be an operation, or all")
	}
	if by := req.GetRequestedBy(); len(by) > maxRequestedBy {
		return nil, errgrpc.Field("requested_by", "has %d bytes, at most %d are allowed", len(by), maxRequestedBy)
	}
	reason := "cancelled"
	// The caller's own word counts where callers are not authenticated.
	if by := cmp.Or(grpcserver.UserFrom(ctx), req.GetRequestedBy()); by != "" {
		reason += " by " + by
	}
	done, err := s.Operations.Cancel(ctx, owner, target, reason)
	if err != nil {
		return nil, err
	}
	return &operationv1.CancelOperationResponse{
		Operations: wireOperations(done.Operations[:min(len(done.Operations), maxMeant)]), Requested: int32(done.Requested), //nolint:gosec // there are not that many
	}, nil
}

// StreamOperationLogs implements operation.v1.OperationMonitorService.
func (s *Server) StreamOperationLogs(req *operationv1.StreamOperationLogsRequest, stream grpc.ServerStreamingServer[operationv1.StreamOperationLogsResponse]) error {
	owner, err := ownerOf(req.GetBackup(), req.GetRestore())
	if err != nil {
		return err
	}
	target := Target{ID: req.GetOperation().GetId(), Action: req.GetOperation().GetAction()}
	if target.ID == "" {
		return errgrpc.Field("operation.id", "must not be empty")
	}
	var since time.Time
	if req.GetSince() != nil {
		since = req.GetSince().AsTime()
	}
	return s.Operations.Logs(stream.Context(), owner, target, since, req.GetFollow(), func(l action.LogLine) error {
		line := &operationv1.StreamOperationLogsResponse{Level: l.Level, Message: l.Message, Fields: l.Fields}
		if !l.Time.IsZero() {
			line.Time = timestamppb.New(l.Time)
		}
		return stream.Send(line)
	})
}

func wireOperations(list []itemoperation.Operation) []*operationv1.Operation {
	out := make([]*operationv1.Operation, len(list))
	for i := range list {
		out[i] = toProto(&list[i])
	}
	return out
}
