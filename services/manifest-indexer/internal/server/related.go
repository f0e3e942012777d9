package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// relatedBatch is how many objects a message has at most.
const relatedBatch = 500

// ListRelated implements ManifestService.
func (s *Server) ListRelated(req *manifestv1.ListRelatedRequest, stream grpc.ServerStreamingServer[manifestv1.ListRelatedResponse]) error {
	if req.GetWithoutChildren() && req.GetWithoutDependencies() {
		return errgrpc.Field("without_dependencies", "nothing is left: children are left out too")
	}
	item, _, err := s.readItem(stream.Context(), req, false)
	if err != nil {
		return err
	}
	s.graphs.Lock() // a graph of a large backup takes much of the memory that there is
	defer s.graphs.Unlock()
	graph, err := s.readGraph(stream.Context(), req.GetBackup())
	if err != nil {
		return err
	}
	root, ok := graph.Find(item.ObjectKey())
	if !ok {
		return fmt.Errorf("backup %q: %w: %w: %s", req.GetBackup(), errgrpc.ErrNotFound, manifest.ErrNotFound, item.Key())
	}
	batch := &manifestv1.ListRelatedResponse{}
	for from, edge := range root.Reach(func(relation string) bool {
		if relation == manifest.Owns {
			return !req.GetWithoutChildren()
		}
		return !req.GetWithoutDependencies()
	}) {
		batch.Items = append(batch.Items, newRelatedItem(from, edge))
		if len(batch.Items) == relatedBatch {
			if err := stream.Send(batch); err != nil {
				return err
			}
			batch = &manifestv1.ListRelatedResponse{}
		}
	}
	return stream.Send(batch)
}

// readGraph reads the graph of a backup.
func (s *Server) readGraph(ctx context.Context, backup string) (_ *manifest.Graph, err error) {
	m, err := s.openBackup(ctx, backup)
	if err != nil {
		return nil, err
	}
	defer m.close(&err)
	graph, err := manifest.ReadGraph(ctx, m.Reader)
	if errors.Is(err, manifest.ErrTooLarge) {
		return nil, fmt.Errorf("backup %q: %w: %w", backup, errgrpc.ErrUnsupported, err)
	}
	return graph, damagedError(err)
}

func newRelatedItem(from manifest.Node, edge manifest.Edge) *manifestv1.RelatedItem {
	key, of := edge.Node.Key(), from.ObjectKey()
	group, version, kind, _ := manifest.SplitKindName(key.Kind)
	return &manifestv1.RelatedItem{
		Group: group, Version: version, Kind: kind, Namespace: key.Namespace, Name: key.Name,
		Of: &manifestv1.Reference{Group: of.Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Relation: edge.Relation},
	}
}
