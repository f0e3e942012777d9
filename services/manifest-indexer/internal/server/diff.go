package server

import (
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/archive/difference"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// DiffManifests implements ManifestService.
func (s *Server) DiffManifests(req *manifestv1.DiffManifestsRequest, stream grpc.ServerStreamingServer[manifestv1.DiffManifestsResponse]) (err error) {
	ctx := stream.Context()
	from, err := s.openBackup(ctx, req.GetFrom())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.release()) }()
	to, err := s.openBackup(ctx, req.GetTo())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.release()) }()
	c := &difference.Comparison{
		From: from.diffSide(), To: to.diffSide(), Kinds: req.GetKinds(), Namespace: req.GetNamespace(), WithFields: req.GetWithFields(),
		Send: func(differences []*manifestv1.ItemDifference, counts *manifestv1.DiffCounts) error {
			return stream.Send(&manifestv1.DiffManifestsResponse{Differences: differences, Counts: counts})
		},
	}
	return c.Run(ctx)
}

func (m *openManifestFile) diffSide() *difference.Side {
	return &difference.Side{Reader: m.Reader, Name: fmt.Sprintf("backup %q", m.backup), Open: m.openSource, MarkDamage: m.markDamage}
}
