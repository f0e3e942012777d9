package job

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
)

// Server implements the service. Safe for concurrent use.
type Server struct {
	backupv1.UnimplementedBackupServiceServer
	source mark.ProgressSource[*velerov1.Backup, *backupv1.Progress]
	kind   *Kind
}

// NewServer returns a server of the backups of a namespace. The reader must not be a cache: answers must
// not go back in time. The kind makes dry runs.
func NewServer(reader client.Reader, namespace string, clk clock.WithTicker, kind *Kind) *Server {
	return &Server{kind: kind, source: mark.ProgressSource[*velerov1.Backup, *backupv1.Progress]{
		Reader: reader, Namespace: namespace, Clock: clk, Kind: "backup",
		New:      func() *velerov1.Backup { return &velerov1.Backup{} },
		Describe: progressOf,
		Terminal: func(b *velerov1.Backup) bool { return b.Status.Phase.Terminal() },
	}}
}

// GetProgress implements the RPC.
func (s *Server) GetProgress(ctx context.Context, req *backupv1.GetProgressRequest) (*backupv1.GetProgressResponse, error) {
	p, err := s.source.Get(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &backupv1.GetProgressResponse{Progress: p}, nil
}

// WatchProgress implements the RPC.
func (s *Server) WatchProgress(req *backupv1.WatchProgressRequest, stream grpc.ServerStreamingServer[backupv1.WatchProgressResponse]) error {
	return s.source.Watch(stream.Context(), req.GetName(), func(p *backupv1.Progress) error {
		return stream.Send(&backupv1.WatchProgressResponse{Progress: p})
	})
}

// progressOf is what the object has.
func progressOf(b *velerov1.Backup) *backupv1.Progress {
	st := &b.Status
	p := &backupv1.Progress{
		Name: b.Name, Uid: string(b.UID), Phase: string(st.Phase), Holder: mark.ClaimOwner(b, st.Phase.Terminal()),
		Warnings: int64(st.Warnings), Errors: int64(st.Errors), FailureReason: st.FailureReason,
		StartTime: mark.ProgressTime(st.StartTimestamp), CompletionTime: mark.ProgressTime(st.CompletionTimestamp),
	}
	if st.Phase.IsNew() {
		p.Phase = string(velerov1.BackupPhaseNew)
	}
	if st.Progress != nil {
		p.TotalItems, p.ItemsBackedUp = int64(st.Progress.TotalItems), int64(st.Progress.ItemsBackedUp)
	}
	return p
}
