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

const (
	// relatedBatch is how many objects a message has at most, maxRelated how many are listed.
	relatedBatch = 500
	maxRelated   = 50_000
)

// ListRelated implements ManifestService.
func (s *Server) ListRelated(req *manifestv1.ListRelatedRequest, stream grpc.ServerStreamingServer[manifestv1.ListRelatedResponse]) error {
	if req.GetWithoutChildren() && req.GetWithoutDependencies() {
		return errgrpc.Field("without_dependencies", "nothing is left: children are left out too")
	}
	messages, err := s.collectRelated(stream.Context(), req)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// collectRelated returns what is to be sent, so that no slow caller keeps the graph.
func (s *Server) collectRelated(ctx context.Context, req *manifestv1.ListRelatedRequest) (messages []*manifestv1.ListRelatedResponse, err error) {
	if err := checkItemRequest(req); err != nil {
		return nil, err
	}
	m, err := s.openBackup(ctx, req.GetBackup())
	if err != nil {
		return nil, err
	}
	defer m.close(&err)
	if err := s.Graphs.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer s.Graphs.Release(1)
	root, err := m.readGraph(ctx, req)
	if err != nil {
		return nil, err
	}
	last, found := &manifestv1.ListRelatedResponse{}, 0
	messages = append(messages, last)
	for from, edge := range root.Reach(req.GetReverse(), func(relation string) bool {
		if relation == manifest.Owns {
			return !req.GetWithoutChildren()
		}
		return !req.GetWithoutDependencies()
	}) {
		if found++; found > maxRelated {
			last.More = true
			break
		}
		if len(last.GetItems()) == relatedBatch {
			last = &manifestv1.ListRelatedResponse{}
			messages = append(messages, last)
		}
		last.Items = append(last.Items, newRelatedItem(from, edge))
	}
	return messages, nil
}

// readGraph reads the graph of a backup, and finds an item in it.
func (m *openManifestFile) readGraph(ctx context.Context, req itemRequest) (root manifest.Node, err error) {
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
		if root, ok = graph.Find(key); !ok { // for an object without namespace any may be given
			key.Namespace = ""
			root, ok = graph.Find(key)
		}
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
