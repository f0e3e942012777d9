// Package server answers holdfast.backup.v1.BackupService.
package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/grpcerr"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// Server reads every answer from the custom resource, so that any replica can
// give it. Safe for concurrent use.
type Server struct {
	backupv1.UnimplementedBackupServiceServer
	// Reader must not be a cache, or answers may be older than the ones before.
	Reader    client.Reader
	Namespace string
	Clock     clock.WithTicker
}

// watchPeriod is the time between two readings of a watched backup.
const watchPeriod = 500 * time.Millisecond

// GetProgress implements the RPC.
func (s *Server) GetProgress(ctx context.Context, req *backupv1.GetProgressRequest) (*backupv1.GetProgressResponse, error) {
	b, err := s.read(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &backupv1.GetProgressResponse{Progress: progress(b)}, nil
}

// WatchProgress implements the RPC.
func (s *Server) WatchProgress(req *backupv1.WatchProgressRequest, stream grpc.ServerStreamingServer[backupv1.WatchProgressResponse]) error {
	ctx := stream.Context()
	ticker := s.Clock.NewTicker(watchPeriod)
	defer ticker.Stop()
	var last *backupv1.Progress
	var uid types.UID
	for {
		b, err := s.read(ctx, req.GetName())
		if err != nil {
			return err
		}
		if uid != "" && b.UID != uid {
			return fmt.Errorf("backup %q: %w", req.GetName(), grpcerr.ErrConflict)
		}
		uid = b.UID
		if now := progress(b); !proto.Equal(now, last) {
			if err := stream.Send(&backupv1.WatchProgressResponse{Progress: now}); err != nil {
				return err
			}
			last = now
		}
		if b.Status.Phase.Terminal() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

func (s *Server) read(ctx context.Context, name string) (*velerov1.Backup, error) {
	b := &velerov1.Backup{}
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, b)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("backup %q: %w", name, grpcerr.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read backup %q: %w", name, err)
	}
	return b, nil
}

func progress(b *velerov1.Backup) *backupv1.Progress {
	st := &b.Status
	p := &backupv1.Progress{
		Name: b.Name, Uid: string(b.UID), Phase: string(st.Phase),
		Warnings: int64(st.Warnings), Errors: int64(st.Errors),
		StartTime: stamp(st.StartTimestamp), CompletionTime: stamp(st.CompletionTimestamp), FailureReason: st.FailureReason,
	}
	if st.Phase.IsNew() {
		p.Phase = string(velerov1.BackupPhaseNew)
	}
	if st.Progress != nil {
		p.TotalItems, p.ItemsBackedUp = int64(st.Progress.TotalItems), int64(st.Progress.ItemsBackedUp)
	}
	// A claim that cannot be read names no holder.
	if c, ok, err := claim.Parse(b); err == nil && ok && !st.Phase.Terminal() {
		p.Holder = c.Holder
	}
	return p
}

func stamp(t *metav1.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.Time)
}
