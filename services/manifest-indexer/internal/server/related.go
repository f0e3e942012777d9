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
	s.graphs.Lock() // a graph of a large backup takes much of the memory that there is
	defer s.graphs.Unlock()
	root, err := s.readGraph(stream.Context(), req)
	if err != nil {
		return err
	}
	batch := &manifestv1.ListRelatedResponse{}
	for from, edge := range root.Reach(req.GetReverse(), func(relation string) bool {
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

// readGraph reads the graph of a backup, and finds an item in it.
func (s *Server) readGraph(ctx context.Context, req itemRequest) (root manifest.Node, err error) {
	if err := checkItemRequest(req); err != nil {
		return root, err
	}
	m, err := s.openBackup(ctx, req.GetBackup())
	if err != nil {
		return root, err
	}
	defer m.close(&err)
	key := manifest.ObjectKey{Namespace: req.GetNamespace(), Name: req.GetName()}
	if req.GetUid() == "" {
		kinds, err := findKinds(m.Kinds(), "kind", req.GetKind())
		if err != nil {
			return root, m.explainMissing(err)
		}
		key.Group, _, key.Kind, _ = manifest.SplitKindName(kinds[0].Kind)
	}
	graph, err := manifest.ReadGraph(ctx, m.Reader)
	if errors.Is(err, manifest.ErrTooLarge) {
		return root, fmt.Errorf("backup %q: %w: %w", req.GetBackup(), errgrpc.ErrUnsupported, err)
	}
	if err != nil {
		return root, damagedError(err)
	}
	root, ok := graph.FindUID(req.GetUid())
	if req.GetUid() == "" {
		root, ok = graph.Find(key)
	}
	if !ok {
		return root, fmt.Errorf("backup %q: %w: %w", req.GetBackup(), errgrpc.ErrNotFound, manifest.ErrNotFound)
	}
	return root, nil
}

func newRelatedItem(from manifest.Node, edge manifest.Edge) *manifestv1.RelatedItem {
	key, of := edge.Node.Key(), from.ObjectKey()
	group, version, kind, _ := manifest.SplitKindName(key.Kind)
	return &manifestv1.RelatedItem{
		Group: group, Version: version, Kind: kind, Namespace: key.Namespace, Name: key.Name, Path: edge.Node.String(),
		Of: &manifestv1.Reference{Group: of.Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Relation: edge.Relation},
	}
}
