package server

import (
	"cmp"
	"context"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	queuev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/queue/v1"
)

// Canceller requests that jobs stop; cancellation.Canceller is one.
type Canceller interface {
	// AskBackup returns the newest state of the backup; the error wraps errgrpc.ErrPrecondition
	// when it is too late.
	AskBackup(ctx context.Context, name, by string) (*velerov1.Backup, error)
	// AskRestore is AskBackup for a restore.
	AskRestore(ctx context.Context, name, by string) (*velerov1.Restore, error)
}

// CancelBackup implements queue.v1.QueueService.
func (s *Server) CancelBackup(ctx context.Context, req *queuev1.CancelBackupRequest) (*queuev1.CancelBackupResponse, error) {
	b, err := s.Canceller.AskBackup(ctx, req.GetName(), callerName(ctx, req.GetRequestedBy()))
	if err != nil {
		return nil, err
	}
	return &queuev1.CancelBackupResponse{Namespace: b.Namespace, Name: b.Name, Uid: string(b.UID), Phase: string(b.Status.Phase)}, nil
}

// CancelRestore implements queue.v1.QueueService.
func (s *Server) CancelRestore(ctx context.Context, req *queuev1.CancelRestoreRequest) (*queuev1.CancelRestoreResponse, error) {
	r, err := s.Canceller.AskRestore(ctx, req.GetName(), callerName(ctx, req.GetRequestedBy()))
	if err != nil {
		return nil, err
	}
	return &queuev1.CancelRestoreResponse{Namespace: r.Namespace, Name: r.Name, Uid: string(r.UID), Phase: string(r.Status.Phase)}, nil
}

// callerName is the caller's name, as far as it is known: the name in the request counts only if callers
// are not authenticated.
func callerName(ctx context.Context, said string) string {
	return cmp.Or(grpcserver.UserFrom(ctx), said)
}
