package job

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/difference"
	backupv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// DiffCluster implements the RPC.
func (s *Server) DiffCluster(req *backupv1.DiffClusterRequest, stream grpc.ServerStreamingServer[backupv1.DiffClusterResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	b := &velerov1.Backup{}
	if err := s.source.Reader.Get(ctx, client.ObjectKey{Namespace: s.source.Namespace, Name: req.GetBackup()}, b); err != nil {
		return fmt.Errorf("backup %q: %w", req.GetBackup(), err)
	}
	progress := &planProgress{clock: s.source.Clock, cancel: cancel, send: func(objects int64) error {
		return stream.Send(&backupv1.DiffClusterResponse{Listed: objects})
	}}
	var messages []string
	return s.kind.DiffCluster(ctx, &ClusterDiff{
		Backup: b, Progress: progress.sendObjects, Messages: func(texts []string) { messages = texts },
		Comparison: difference.Comparison{Kinds: req.GetKinds(), Namespace: req.GetNamespace(), WithFields: req.GetWithFields(),
			Send: func(differences []*manifestv1.ItemDifference, counts *manifestv1.DiffCounts) error {
				m := &backupv1.DiffClusterResponse{Differences: differences, Counts: counts, Messages: messages}
				messages = nil
				return stream.Send(m)
			}},
	})
}
