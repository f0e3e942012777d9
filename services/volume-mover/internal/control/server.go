package control

import (
	"context"

	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
)

// Server implements VolumeService. Errors are Go errors that the gRPC server's interceptor translates.
type Server struct {
	volumev1.UnimplementedVolumeServiceServer
	Controller *Controller
}

// ForgetSnapshots implements VolumeService.
func (s *Server) ForgetSnapshots(ctx context.Context, req *volumev1.ForgetSnapshotsRequest) (*volumev1.ForgetSnapshotsResponse, error) {
	err := s.Controller.ForgetSnapshots(ctx, Snapshots{Location: req.GetLocation(), Namespace: req.GetNamespace(), IDs: req.GetSnapshotIds()})
	if err != nil {
		return nil, err
	}
	return &volumev1.ForgetSnapshotsResponse{}, nil
}
