package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
	"github.com/holdfast-io/holdfast/pkg/telemetry/span"
)

func TestATracedStoreIsAStore(t *testing.T) {
	storetest.Run(t, func(testing.TB) objectstore.Store { return objectstore.Traced(memstore.New(), "default") })
	storetest.RunUploads(t, func(testing.TB) (objectstore.Store, func(string)) {
		s := memstore.New()
		return objectstore.Traced(s, "default"), s.LeaveUpload
	})
}

// recordSpans runs do within a span and returns the spans of the calls in it.
func recordSpans(t *testing.T, do func(ctx context.Context, s objectstore.Store, bucket *memstore.Store)) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	ctx, job := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(t.Context(), "job")
	ctx, end := span.Group(ctx)
	bucket := memstore.New()
	do(ctx, objectstore.Traced(bucket, "default"), bucket)
	end()
	job.End()
	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range recorder.Ended() {
		spans[s.Name()] = s // of one kind the last to end is the one of all calls
	}
	return spans
}

func callCount(t *testing.T, s sdktrace.ReadOnlySpan) int64 {
	t.Helper()
	require.NotNil(t, s)
	for _, kv := range s.Attributes() {
		if kv.Key == "holdfast.calls.count" {
			return kv.Value.AsInt64()
		}
	}
	return -1
}

func TestStoreCallsAreSpans(t *testing.T) {
	spans := recordSpans(t, func(ctx context.Context, s objectstore.Store, _ *memstore.Store) {
		var sources []objectstore.Source
		for n := range 5 {
			part := layout.Part("b", "uid", 1, "pods", 0, n)
			require.NoError(t, objectstore.CreateBytes(ctx, s, part, []byte("part")))
			require.NoError(t, objectstore.CreateBytes(ctx, s, layout.Sidecar(part), []byte("sidecar")))
			sources = append(sources, objectstore.Source{Key: part, Length: -1})
		}
		_, err := s.Compose(ctx, layout.BackupTarball("b"), sources)
		require.NoError(t, err)
		require.NoError(t, objectstore.PutBytes(ctx, s, layout.BackupLog("b"), nil))
		for range 3 {
			body, err := s.GetRange(ctx, layout.BackupTarball("b"), 0, 4)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, body)
			require.NoError(t, err)
			require.NoError(t, body.Close())
			require.NoError(t, body.Close(), "the second call changes nothing")
		}
		_, err = s.Stat(ctx, layout.BackupMetadata("b"))
		require.ErrorIs(t, err, objectstore.ErrNotFound)
		n, err := objectstore.DeletePrefix(ctx, s, layout.PartsDir("b"))
		require.NoError(t, err)
		require.Equal(t, 10, n)
	})
	for name, calls := range map[string]int64{
		"create part": 5, "create sidecar": 5, "compose tarball": 1, "put log": 1, "get tarball": 3, "stat metadata": 1,
		"list object": 1, "delete part": 5, "delete sidecar": 5,
	} {
		require.Contains(t, spans, name)
		require.Equal(t, calls, callCount(t, spans[name]), name)
		require.Equal(t, codes.Unset, spans[name].Status().Code, name)
		require.Contains(t, spans[name].Attributes(), attribute.String("holdfast.location", "default"), name)
	}
	require.Len(t, spans, 10, "with that of the job")
}

func TestStoreCallsThatFailSayWhy(t *testing.T) {
	away := errors.New("the bucket is away")
	spans := recordSpans(t, func(ctx context.Context, s objectstore.Store, bucket *memstore.Store) {
		key := layout.BackupManifest("b")
		require.NoError(t, objectstore.CreateBytes(ctx, s, key, bytes.Repeat([]byte("x"), 100)))
		require.ErrorIs(t, objectstore.CreateBytes(ctx, s, key, nil), objectstore.ErrExists)
		stop := errors.New("enough")
		require.ErrorIs(t, s.List(ctx, "", func(objectstore.Info) error { return stop }), stop)
		bucket.Inject(func(op memstore.Op, _ string) error {
			if op == memstore.OpRead || op == memstore.OpDelete {
				return away
			}
			return nil
		})
		body, err := s.Get(ctx, key)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, body)
		require.ErrorIs(t, err, away)
		require.NoError(t, body.Close())
		require.ErrorIs(t, s.Delete(ctx, key), away)
	})
	for name, failed := range map[string]bool{"create manifest": false, "list object": false, "get manifest": true, "delete manifest": true} {
		require.Contains(t, spans, name)
		status := spans[name].Status()
		require.Equal(t, failed, status.Code == codes.Error, name)
		if failed {
			require.Contains(t, status.Description, away.Error())
		}
	}
}
