package wireserver

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// chunk is how much of an object a message carries.
const chunk = 64 << 10

type objectStores struct {
	velero.UnimplementedObjectStoreServer
	*Server
}

func (s objectStores) findStore(name string) (plugin.ObjectStore, error) {
	store, _, err := findPlugin[plugin.ObjectStore](s.Server, plugin.KindObjectStore, name)
	return store, err
}

func (s objectStores) Init(ctx context.Context, req *velero.ObjectStoreInitRequest) (*velero.Empty, error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velero.Empty{}, store.Init(ctx, req.GetConfig())
}

func (s objectStores) PutObject(stream grpc.ClientStreamingServer[velero.PutObjectRequest, velero.Empty]) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, "PutObject: no message came, so nothing says what to write")
	}
	if err != nil {
		return err
	}
	store, err := s.findStore(first.GetPlugin())
	if err != nil {
		return err
	}
	if err := store.PutObject(stream.Context(), first.GetBucket(), first.GetKey(), &body{stream: stream, rest: first.GetBody()}); err != nil {
		return err
	}
	return stream.SendAndClose(&velero.Empty{})
}

// body reads what a stream carries.
type body struct {
	stream grpc.ClientStreamingServer[velero.PutObjectRequest, velero.Empty]
	rest   []byte
}

func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		next, err := b.stream.Recv()
		if err != nil {
			return 0, err
		}
		b.rest = next.GetBody()
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (s objectStores) ObjectExists(ctx context.Context, req *velero.ObjectExistsRequest) (*velero.ObjectExistsResponse, error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	exists, err := store.ObjectExists(ctx, req.GetBucket(), req.GetKey())
	return &velero.ObjectExistsResponse{Exists: exists}, err
}

func (s objectStores) GetObject(req *velero.GetObjectRequest, stream grpc.ServerStreamingServer[velero.Bytes]) (err error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return err
	}
	object, err := store.GetObject(stream.Context(), req.GetBucket(), req.GetKey())
	if err != nil {
		return err
	}
	if object == nil {
		return status.Error(codes.Internal, "GetObject: the plugin returned neither an object nor an error")
	}
	defer object.Close()
	buffer := make([]byte, chunk)
	for {
		n, err := object.Read(buffer)
		if n > 0 { // sent is encoded, so the buffer is free again
			if err := stream.Send(&velero.Bytes{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s objectStores) ListCommonPrefixes(ctx context.Context, req *velero.ListCommonPrefixesRequest) (*velero.ListCommonPrefixesResponse, error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	prefixes, err := store.ListCommonPrefixes(ctx, req.GetBucket(), req.GetDelimiter(), req.GetPrefix())
	return &velero.ListCommonPrefixesResponse{Prefixes: prefixes}, err
}

func (s objectStores) ListObjects(ctx context.Context, req *velero.ListObjectsRequest) (*velero.ListObjectsResponse, error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	keys, err := store.ListObjects(ctx, req.GetBucket(), req.GetPrefix())
	return &velero.ListObjectsResponse{Keys: keys}, err
}

func (s objectStores) DeleteObject(ctx context.Context, req *velero.DeleteObjectRequest) (*velero.Empty, error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	return &velero.Empty{}, store.DeleteObject(ctx, req.GetBucket(), req.GetKey())
}

func (s objectStores) CreateSignedURL(ctx context.Context, req *velero.CreateSignedURLRequest) (*velero.CreateSignedURLResponse, error) {
	store, err := s.findStore(req.GetPlugin())
	if err != nil {
		return nil, err
	}
	if req.GetTtl() <= 0 {
		return nil, status.Errorf(codes.InvalidArgument, "ttl: %d ns: want more", req.GetTtl())
	}
	url, err := store.CreateSignedURL(ctx, req.GetBucket(), req.GetKey(), time.Duration(req.GetTtl()))
	return &velero.CreateSignedURLResponse{Url: url}, err
}
