package repository

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/format"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/filestore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

type blobText []byte

func (c blobText) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(c)
	return int64(n), err
}
func (c blobText) Length() int { return len(c) }
func (c blobText) Reader() io.ReadSeekCloser {
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(c), io.NopCloser(nil)}
}

type buffer struct{ bytes.Buffer }

func (b *buffer) Length() int { return b.Len() }

// TestStorage checks what kopia requires of a blob.Storage, which its own checks, internal to its module,
// check of its storages.
func TestStorage(t *testing.T) {
	files, err := filestore.Open(t.TempDir())
	require.NoError(t, err)
	for name, store := range map[string]objectstore.Store{"file": files, "memory": memstore.New()} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s, err := newStorage(store, Options{Namespace: "app"})
			require.NoError(t, err)
			get := func(id blob.ID, offset, length int64) (string, error) {
				out := &buffer{}
				out.WriteString("of an earlier call")
				err := s.GetBlob(ctx, id, offset, length, out)
				return out.String(), err
			}
			var written time.Time
			require.NoError(t, s.PutBlob(ctx, "pa", blobText("0123456789"), blob.PutOptions{GetModTime: &written}))
			require.NoError(t, s.PutBlob(ctx, "pb", blobText(""), blob.PutOptions{}))
			require.NoError(t, s.PutBlob(ctx, "q", blobText("x"), blob.PutOptions{DoNotRecreate: true}))
			require.ErrorIs(t, s.PutBlob(ctx, "q", blobText("y"), blob.PutOptions{DoNotRecreate: true}), blob.ErrBlobAlreadyExists)
			require.NoError(t, s.lastFailure())
			require.ErrorIs(t, s.PutBlob(ctx, "q", blobText("y"), blob.PutOptions{SetModTime: time.Now()}), blob.ErrSetTimeUnsupported)
			require.ErrorIs(t, s.PutBlob(ctx, "q", blobText("y"), blob.PutOptions{RetentionMode: blob.Governance}), blob.ErrUnsupportedPutBlobOption)

			for _, c := range []struct {
				id             blob.ID
				offset, length int64
				want           string
				err            error
			}{
				{"pa", 0, -1, "0123456789", nil}, {"pa", 5, -1, "0123456789", nil}, {"pb", 0, -1, "", nil}, {"q", 0, -1, "x", nil},
				{"pa", 2, 3, "234", nil}, {"pa", 8, 2, "89", nil}, {"pa", 3, 0, "", nil},
				{"pa", 8, 3, "", blob.ErrInvalidRange}, {"pa", 11, 1, "", blob.ErrInvalidRange}, {"pa", -1, 1, "", blob.ErrInvalidRange},
				{"absent", 0, -1, "", blob.ErrBlobNotFound}, {"absent", 0, 1, "", blob.ErrBlobNotFound},
			} {
				got, err := get(c.id, c.offset, c.length)
				require.ErrorIs(t, err, c.err, "%+v", c)
				if c.err == nil {
					require.Equal(t, c.want, got, "%+v", c)
				}
			}
			m, err := s.GetMetadata(ctx, "pa")
			require.NoError(t, err)
			require.Equal(t, blob.Metadata{BlobID: "pa", Length: 10, Timestamp: m.Timestamp}, m)
			require.Equal(t, written, m.Timestamp)
			require.WithinDuration(t, time.Now(), m.Timestamp, time.Minute)
			_, err = s.GetMetadata(ctx, "absent")
			require.ErrorIs(t, err, blob.ErrBlobNotFound)

			listed, err := blob.ListAllBlobs(ctx, s, "p")
			require.NoError(t, err)
			require.Equal(t, []blob.ID{"pa", "pb"}, blob.IDsFromMetadata(listed))
			require.ErrorIs(t, s.ListBlobs(ctx, "", func(blob.Metadata) error { return io.ErrShortWrite }), io.ErrShortWrite)
			for range 2 {
				require.NoError(t, s.DeleteBlob(ctx, "pa"))
			}
			for _, length := range []int64{-1, 3} {
				_, err = get("pa", 2, length)
				require.ErrorIs(t, err, blob.ErrBlobNotFound)
			}
		})
	}
}

// timeless is a store without times, as one behind a plugin is.
type timeless struct{ objectstore.Store }

func (s timeless) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	info, err := s.Store.Stat(ctx, key)
	info.ModTime = time.Time{}
	return info, err
}

func TestStoreWithoutTimes(t *testing.T) {
	store := memstore.New()
	o := Options{Namespace: "app", Password: "secret", Dir: t.TempDir(), Fatal: func(error) {}}
	r, err := Create(t.Context(), store, o)
	require.NoError(t, err)
	require.NoError(t, r.Close(t.Context()))
	_, err = Open(t.Context(), timeless{store}, o)
	require.ErrorIs(t, err, ErrNoTimes)
}

func TestLocked(t *testing.T) {
	o := Options{Namespace: "app", Password: "secret", Dir: t.TempDir(), Fatal: func(error) {}}
	store := memstore.New()
	s, err := newStorage(store, o)
	require.NoError(t, err)
	require.NoError(t, repo.Initialize(t.Context(), s, &repo.NewRepositoryOptions{BlockFormat: format.ContentFormat{MutableParameters: format.MutableParameters{Version: 2}}}, o.Password))
	r, err := Open(t.Context(), store, o)
	require.NoError(t, err)
	_, err = r.Repository.(repo.DirectRepository).FormatManager().SetUpgradeLockIntent(t.Context(), format.UpgradeLockIntent{
		OwnerID: "other", CreationTime: time.Now().Add(-time.Hour), IODrainTimeout: time.Minute, StatusPollInterval: time.Second, Message: "m", MaxPermittedClockDrift: time.Second,
	})
	require.NoError(t, err)
	require.NoError(t, r.Close(t.Context()))
	_, err = Open(t.Context(), store, o)
	require.ErrorIs(t, err, ErrLocked)
}
