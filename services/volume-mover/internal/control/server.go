package control

import (
	"context"

	"google.golang.org/grpc"

	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/moverpod"
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

// ListFiles implements VolumeService.
func (s *Server) ListFiles(req *volumev1.ListFilesRequest, stream grpc.ServerStreamingServer[volumev1.ListFilesResponse]) error {
	f := selectFiles(moverpod.ListFiles, req.GetBackup(), req.GetVolume(), req.GetPath())
	return streamFiles(stream.Context(), s.Controller, f, stream.Send)
}

// ReadFile implements VolumeService.
func (s *Server) ReadFile(req *volumev1.ReadFileRequest, stream grpc.ServerStreamingServer[volumev1.ReadFileResponse]) error {
	f := selectFiles(moverpod.ReadFile, req.GetBackup(), req.GetVolume(), req.GetPath())
	return streamFiles(stream.Context(), s.Controller, f, stream.Send)
}

func selectFiles(verb, backup string, v *volumev1.VolumeSelector, path string) moverpod.Files {
	return moverpod.Files{Verb: verb, Backup: backup, Namespace: v.GetNamespace(), Claim: v.GetClaim(), Pod: v.GetPod(), Volume: v.GetPodVolume(), Path: path}
}
