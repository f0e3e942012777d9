// Package server answers holdfast.restore.v1.RestoreService from the Restore objects, so that every replica gives the
// same answers, and from the running job where this process has it.
package server

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// watchEvery is how often a watched restore is looked at.
const watchEvery = time.Second

// Jobs tells about the restores this process works on.
type Jobs interface {
	// Running returns how far a restore is; false when it is not worked on here.
	Running(uid types.UID) (outcome.Counts, bool)
}

// Server implements RestoreService; its errors become statuses in the interceptors of pkg/grpcserver. Safe for concurrent use.
type Server struct {
	restorev1.UnimplementedRestoreServiceServer
	reader    client.Reader
	namespace string
	jobs      Jobs
	clock     clock.WithTicker
}

// New returns a server of the restores of a namespace. The reader must not be a cache: answers must not go back in time.
func New(reader client.Reader, namespace string, jobs Jobs, clk clock.WithTicker) *Server {
	return &Server{reader: reader, namespace: namespace, jobs: jobs, clock: clk}
}

// GetProgress implements RestoreService.
func (s *Server) GetProgress(ctx context.Context, req *restorev1.GetProgressRequest) (*restorev1.GetProgressResponse, error) {
	progress, err := s.progress(ctx, req.GetName(), "")
	if err != nil {
		return nil, err
	}
	return &restorev1.GetProgressResponse{Progress: progress}, nil
}

// WatchProgress implements RestoreService.
func (s *Server) WatchProgress(req *restorev1.WatchProgressRequest, stream restorev1.RestoreService_WatchProgressServer) error {
	return s.watch(stream.Context(), req.GetName(), func(p *restorev1.Progress) error {
		return stream.Send(&restorev1.WatchProgressResponse{Progress: p})
	})
}

func (s *Server) watch(ctx context.Context, name string, send func(*restorev1.Progress) error) error {
	ticker := s.clock.NewTicker(watchEvery)
	defer ticker.Stop()
	var last *restorev1.Progress
	for {
		now, err := s.progress(ctx, name, last.GetUid())
		if err != nil {
			return err
		}
		if !proto.Equal(now, last) {
			if err := send(now); err != nil {
				return err
			}
			last = now
		}
		if velerov1.RestorePhase(now.GetPhase()).Terminal() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		}
	}
}

// progress reads a restore. With uid set it must still be the same one.
func (s *Server) progress(ctx context.Context, name, uid string) (*restorev1.Progress, error) {
	restore := &velerov1.Restore{}
	err := s.reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, restore)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("restore %q: %w", name, grpcerr.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read restore %q: %w", name, errors.Join(grpcerr.ErrUnavailable, err))
	}
	if uid != "" && string(restore.UID) != uid {
		return nil, fmt.Errorf("restore %q was replaced by another of its name: %w", name, grpcerr.ErrConflict)
	}
	p := describe(restore)
	if counts, ok := s.jobs.Running(restore.UID); ok && !restore.Status.Phase.Terminal() && counts.Total > 0 {
		p.TotalItems, p.ItemsRestored = int64(counts.Total), int64(counts.Done)
		p.Warnings, p.Errors = int64(counts.Warnings), int64(counts.Errors)
	}
	return p, nil
}

// describe is what the object itself says.
func describe(restore *velerov1.Restore) *restorev1.Progress {
	status := &restore.Status
	p := &restorev1.Progress{
		Name: restore.Name, Uid: string(restore.UID), Phase: string(status.Phase),
		Warnings: int64(status.Warnings), Errors: int64(status.Errors),
		StartTime: timestamp(status.StartTimestamp), CompletionTime: timestamp(status.CompletionTimestamp),
		FailureReason: status.FailureReason,
	}
	if status.Phase.IsNew() {
		p.Phase = string(velerov1.RestorePhaseNew)
	}
	if status.Progress != nil {
		p.TotalItems, p.ItemsRestored = int64(status.Progress.TotalItems), int64(status.Progress.ItemsRestored)
	}
	if held, ok, err := claim.Parse(restore); err == nil && ok && !status.Phase.Terminal() {
		p.Holder = held.Holder
	}
	return p
}

func timestamp(t *metav1.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(t.Time)
}
