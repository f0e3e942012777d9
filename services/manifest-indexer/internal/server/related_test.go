package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
)

// relatedStream collects what a server sends.
type relatedStream struct {
	grpc.ServerStream
	ctx      context.Context
	lines    []string
	messages int
	more     bool
}

func (s *relatedStream) Context() context.Context { return s.ctx }

func (s *relatedStream) Send(m *manifestv1.ListRelatedResponse) error {
	for _, i := range m.GetItems() {
		s.lines = append(s.lines, fmt.Sprintf("%s %s/%s: %s %s", i.GetKind(), i.GetNamespace(), i.GetName(), i.GetOf().GetName(), i.GetOf().GetRelation()))
	}
	s.messages, s.more = s.messages+1, m.GetMore()
	return nil
}

// The bed's Deployment owns a ReplicaSet and reads a Secret.
func TestListRelated(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for _, tc := range []struct {
		req  *manifestv1.ListRelatedRequest
		want []string
	}{
		{&manifestv1.ListRelatedRequest{}, []string{"ReplicaSet shop/web-1: web owns", "Secret shop/db: web reads"}},
		{&manifestv1.ListRelatedRequest{WithoutChildren: true}, []string{"Secret shop/db: web reads"}},
		{&manifestv1.ListRelatedRequest{WithoutDependencies: true}, []string{"ReplicaSet shop/web-1: web owns"}},
	} {
		tc.req.Backup, tc.req.Kind, tc.req.Namespace, tc.req.Name = "b", "deploy", "shop", "web"
		stream := &relatedStream{ctx: t.Context()}
		require.NoError(t, b.s.ListRelated(tc.req, stream))
		require.Equal(t, tc.want, stream.lines)
	}
	stream := &relatedStream{ctx: t.Context()}
	require.NoError(t, b.s.ListRelated(&manifestv1.ListRelatedRequest{Backup: "b", Uid: "uid-web-1"}, stream))
	require.Empty(t, stream.lines)
	stream = &relatedStream{ctx: t.Context()}
	require.NoError(t, b.s.ListRelated(&manifestv1.ListRelatedRequest{Backup: "b", Kind: "secret", Namespace: "shop", Name: "db", Reverse: true}, stream))
	require.Equal(t, []string{"Deployment shop/web: db reads"}, stream.lines)
	call := func(req *manifestv1.ListRelatedRequest) error {
		return b.s.ListRelated(req, &relatedStream{ctx: t.Context()})
	}
	require.NoError(t, call(&manifestv1.ListRelatedRequest{Backup: "b", Kind: "ns", Namespace: "shop", Name: "ns-0"}), "it has no namespace")
	require.ErrorIs(t, call(&manifestv1.ListRelatedRequest{Backup: "b", Kind: "deploy", Namespace: "shop", Name: "absent"}), errgrpc.ErrNotFound)
	require.ErrorIs(t, call(&manifestv1.ListRelatedRequest{Backup: "b", Uid: "absent"}), errgrpc.ErrNotFound)
	require.ErrorIs(t, call(&manifestv1.ListRelatedRequest{Backup: "b", Kind: "pods", Name: "x"}), errgrpc.ErrNotFound)
	field := new(errgrpc.FieldError)
	require.ErrorAs(t, call(&manifestv1.ListRelatedRequest{Backup: "b"}), &field)
	require.Equal(t, "kind", field.Field)
	require.ErrorAs(t, call(&manifestv1.ListRelatedRequest{Backup: "b", Uid: "uid-web", WithoutChildren: true, WithoutDependencies: true}), &field)
	require.Equal(t, "without_dependencies", field.Field)
	b.store.Set(layout.BackupManifest("b"), []byte("no manifest"))
	require.Error(t, call(&manifestv1.ListRelatedRequest{Backup: "b", Uid: "uid-web"}))
}

func TestListRelatedIsBounded(t *testing.T) {
	t.Parallel()
	owner := `Widget.v1.g.io {"metadata":{"name":"a","uid":"root"}}`
	objects := []string{owner}
	for i := range relatedBatch + 1 {
		objects = append(objects, fmt.Sprintf(`Widget.v1.g.io {"metadata":{"name":"b-%05d","ownerReferences":[{"apiVersion":"g.io/v1","kind":"Widget","name":"a","uid":"root"}]}}`, i))
	}
	b := newDiffBed(t, manifest.Header{}, map[string][]string{"old": objects, "new": {owner}})
	stream := &relatedStream{ctx: t.Context()}
	require.NoError(t, b.s.ListRelated(&manifestv1.ListRelatedRequest{Backup: "old", Kind: "widget", Name: "a"}, stream))
	require.Len(t, stream.lines, relatedBatch+1)
	require.Equal(t, 2, stream.messages)
	require.False(t, stream.more)
}

// A call that waits for another one's graph ends with its caller, and what needs no graph does not wait.
func TestListRelatedWaitsAsLongAsItsCaller(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	require.NoError(t, b.s.Graphs.Acquire(t.Context(), 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	require.ErrorContains(t, b.s.ListRelated(&manifestv1.ListRelatedRequest{Backup: "absent", Uid: "uid-web"}, &relatedStream{ctx: ctx}), `backup "absent"`)
	gone := errors.New("the caller is gone")
	cancel(gone)
	req := &manifestv1.ListRelatedRequest{Backup: "b", Uid: "uid-web"}
	require.ErrorIs(t, b.s.ListRelated(req, &relatedStream{ctx: ctx}), context.Canceled)
	b.s.Graphs.Release(1)
	require.NoError(t, b.s.ListRelated(req, &relatedStream{ctx: t.Context()}))
}
