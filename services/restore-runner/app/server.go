package app

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	restorev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// runningJobs returns the restores this process works on.
type runningJobs interface {
	// Running returns how far a restore is; false when it is not worked on here.
	Running(uid types.UID) (outcome.Counts, bool)
	// LogTail returns the log of a restore as it is written; nil when it is not worked on here.
	LogTail(uid types.UID) *joblog.Tail
}

// restoreServer implements RestoreService from the Restore objects, so that every replica gives the
// same answers, and from the running job where this process has it. Its errors become statuses in the
// interceptors of pkg/service/grpcserver. Safe for concurrent use.
type restoreServer struct {
	restorev1.UnimplementedRestoreServiceServer
	source   mark.ProgressSource[*velerov1.Restore, *restorev1.Progress]
	jobs     runningJobs
	instance string // the name of this process's Lease
	holders  *operationhome.Client
	plans    planner
}

// newServer returns a server of the restores of a namespace. The reader must not be a cache: answers must
// not go back in time.
func newServer(reader client.Reader, namespace string, jobs runningJobs, instance string, clk clock.WithTicker) *restoreServer {
	s := &restoreServer{jobs: jobs, instance: instance}
	s.source = mark.ProgressSource[*velerov1.Restore, *restorev1.Progress]{
		Reader: reader, Namespace: namespace, Clock: clk, Kind: "restore",
		New:      func() *velerov1.Restore { return &velerov1.Restore{} },
		Describe: s.progressOf,
		Terminal: func(r *velerov1.Restore) bool { return r.Status.Phase.Terminal() },
	}
	return s
}

// GetProgress implements RestoreService.
func (s *restoreServer) GetProgress(ctx context.Context, req *restorev1.GetProgressRequest) (*restorev1.GetProgressResponse, error) {
	p, err := s.source.Get(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &restorev1.GetProgressResponse{Progress: p}, nil
}

// WatchProgress implements RestoreService.
func (s *restoreServer) WatchProgress(req *restorev1.WatchProgressRequest, stream grpc.ServerStreamingServer[restorev1.WatchProgressResponse]) error {
	return s.source.Watch(stream.Context(), req.GetName(), func(p *restorev1.Progress) error {
		return stream.Send(&restorev1.WatchProgressResponse{Progress: p})
	})
}

// progressOf returns the progress from the object, and from the job itself if this process runs it.
func (s *restoreServer) progressOf(r *velerov1.Restore) *restorev1.Progress {
	status := &r.Status
	p := &restorev1.Progress{
		Name: r.Name, Uid: string(r.UID), Phase: string(status.Phase), Holder: mark.ClaimOwner(r, status.Phase.Terminal()),
		Warnings: int64(status.Warnings), Errors: int64(status.Errors), FailureReason: status.FailureReason,
		StartTime: mark.ProgressTime(status.StartTimestamp), CompletionTime: mark.ProgressTime(status.CompletionTimestamp),
	}
	if status.Phase.IsNew() {
		p.Phase = string(velerov1.RestorePhaseNew)
	}
	if status.Progress != nil {
		p.TotalItems, p.ItemsRestored = int64(status.Progress.TotalItems), int64(status.Progress.ItemsRestored)
	}
	if counts, ok := s.jobs.Running(r.UID); ok && !status.Phase.Terminal() && counts.Total > 0 {
		p.TotalItems, p.ItemsRestored = int64(counts.Total), int64(counts.Done)
		p.Warnings, p.Errors = int64(counts.Warnings), int64(counts.Errors)
	}
	return p
}
