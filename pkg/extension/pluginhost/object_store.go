package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// chunk is how much of an object travels in one message: large enough to be few, small enough for
// the 4 MiB that Velero's framework accepts.
const chunk = 256 << 10

// listFactor is how much larger than other answers a list of keys may be: it comes in one message.
const listFactor = 4

// errEmptyBody: a stream without a message is an error in Velero's framework, so an empty object
// cannot be stored.
var errEmptyBody = errors.New("body is empty, which a plugin cannot store")

// errTooSoon: a success before the end of the body cannot mean the whole body.
var errTooSoon = fmt.Errorf("%w: success before the whole body was sent", ErrMalformed)

// objectStore serves generated.ObjectStore.
type objectStore struct{ *storage }

func newObjectStore(p plugin, config map[string]string) *objectStore {
	return &objectStore{newStorage(p, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := velero.NewObjectStoreClient(conn).Init(ctx, &velero.ObjectStoreInitRequest{Plugin: p.name, Config: config})
		return err
	})}
}

// Put streams the body.
func (o *objectStore) Put(ctx context.Context, bucket, key string, body io.Reader) error {
	first := make([]byte, chunk)
	n, err := io.ReadFull(body, first)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		c := o.slowCall("PutObject")
		return c.callError(errEmptyBody, false)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	}
	t, err := o.openTransfer(ctx, "PutObject")
	if err != nil {
		return err
	}
	return t.endTransfer(o.putStream(t, bucket, key, body, first[:n]))
}

func (o *objectStore) putStream(t *transfer, bucket, key string, body io.Reader, part []byte) error {
	stream, err := velero.NewObjectStoreClient(t.p.conn).PutObject(t.streamContext())
	if err != nil {
		return err
	}
	whole := false
	for !whole {
		err := t.runStep(func() error {
			return stream.Send(&velero.PutObjectRequest{Plugin: o.name, Bucket: bucket, Key: key, Body: part})
		})
		if errors.Is(err, io.EOF) {
			break // the plugin has answered; CloseAndRecv returns what
		}
		if err != nil {
			return err
		}
		n, err := io.ReadFull(body, part[:cap(part)])
		whole = n == 0 && errors.Is(err, io.EOF)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err // the stream is cancelled, not ended: the plugin must not take the part for the whole
		}
		part = part[:n]
	}
	err = t.runStep(func() error { _, err := stream.CloseAndRecv(); return err })
	if err == nil && !whole {
		err = errTooSoon
	}
	return err
}

// Exists calls the plugin.
func (o *objectStore) Exists(ctx context.Context, bucket, key string) (exists bool, err error) {
	err = o.runConfigured(ctx, o.slowQuery("ObjectExists"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewObjectStoreClient(p.conn).ObjectExists(ctx, &velero.ObjectExistsRequest{Plugin: o.name, Bucket: bucket, Key: key})
		exists = answer.GetExists()
		return err
	})
	return exists, err
}

// Get waits for the first chunk, so that an absent object is an error here.
func (o *objectStore) Get(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	t, err := o.openTransfer(ctx, "GetObject")
	if err != nil {
		return nil, err
	}
	stream, err := velero.NewObjectStoreClient(t.p.conn).GetObject(t.streamContext(), &velero.GetObjectRequest{Plugin: o.name, Bucket: bucket, Key: key})
	if err != nil {
		return nil, t.endTransfer(err)
	}
	r := &objectReader{transfer: t, stream: stream}
	r.fillBuffer()
	if r.err != nil && !errors.Is(r.err, io.EOF) {
		return nil, r.err
	}
	return r, nil
}

// objectReader reads one object. Not safe for concurrent use.
type objectReader struct {
	*transfer
	stream grpc.ServerStreamingClient[velero.Bytes]
	rest   []byte
	err    error
}

// Read returns what has come, or waits for the next chunk.
func (r *objectReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fillBuffer()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *objectReader) fillBuffer() {
	err := r.runStep(func() error {
		answer, err := r.stream.Recv()
		r.rest = answer.GetData()
		return err
	})
	switch {
	case errors.Is(err, io.EOF):
		r.err = io.EOF
		_ = r.endTransfer(nil) // nil for nil
	case err != nil:
		r.err = r.endTransfer(err)
	}
}

// Close ends the transfer, also in the middle.
func (r *objectReader) Close() error {
	_ = r.endTransfer(nil) // nil for nil
	r.rest = nil
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	return nil
}

// ListCommonPrefixes calls the plugin.
func (o *objectStore) ListCommonPrefixes(ctx context.Context, bucket, delimiter, prefix string) (prefixes []string, err error) {
	err = o.runConfigured(ctx, o.slowQuery("ListCommonPrefixes"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewObjectStoreClient(p.conn).ListCommonPrefixes(ctx, &velero.ListCommonPrefixesRequest{
			Plugin: o.name, Bucket: bucket, Delimiter: delimiter, Prefix: prefix}, o.listLimit())
		prefixes = answer.GetPrefixes()
		return err
	})
	return prefixes, err
}

// ListObjects calls the plugin.
func (o *objectStore) ListObjects(ctx context.Context, bucket, prefix string) (keys []string, err error) {
	err = o.runConfigured(ctx, o.slowQuery("ListObjects"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewObjectStoreClient(p.conn).ListObjects(ctx, &velero.ListObjectsRequest{Plugin: o.name, Bucket: bucket, Prefix: prefix}, o.listLimit())
		keys = answer.GetKeys()
		return err
	})
	return keys, err
}

func (o *objectStore) listLimit() grpc.CallOption {
	return grpc.MaxCallRecvMsgSize(listFactor * o.worker.spec.limits.Answer)
}

// Delete calls the plugin.
func (o *objectStore) Delete(ctx context.Context, bucket, key string) error {
	return o.runConfigured(ctx, o.slowCall("DeleteObject"), func(ctx context.Context, p *process) error {
		_, err := velero.NewObjectStoreClient(p.conn).DeleteObject(ctx, &velero.DeleteObjectRequest{Plugin: o.name, Bucket: bucket, Key: key})
		return err
	})
}

// SignedURL calls the plugin; the protocol states the time to live in nanoseconds.
func (o *objectStore) SignedURL(ctx context.Context, bucket, key string, ttl time.Duration) (url string, err error) {
	err = o.runConfigured(ctx, o.newQuery("CreateSignedURL"), func(ctx context.Context, p *process) error {
		answer, err := velero.NewObjectStoreClient(p.conn).CreateSignedURL(ctx, &velero.CreateSignedURLRequest{
			Plugin: o.name, Bucket: bucket, Key: key, Ttl: ttl.Nanoseconds()})
		url = answer.GetUrl()
		return err
	})
	return url, err
}
