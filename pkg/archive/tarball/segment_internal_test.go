package tarball

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// packed is a tarball in memory.
type packed []byte

// ReadRange implements manifest.RangeReader.
func (p packed) ReadRange(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(p[off:][:n])), nil
}

// addMember adds a gzip member of bodies of zeros of these sizes, and returns items that name them.
func (p *packed) addMember(t *testing.T, sizes ...int) []manifest.Item {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	var items []manifest.Item
	for i, size := range sizes {
		body := make([]byte, size)
		sum := sha256.Sum256(body)
		name := fmt.Sprintf("resources/configmaps/namespaces/ns/c-%d.json", i)
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(size), Mode: 0o600}))
		_, err := w.Write(body)
		require.NoError(t, err)
		items = append(items, manifest.Item{Path: name, Size: int64(size), SHA256: hex.EncodeToString(sum[:]), Offset: int64(len(*p))})
	}
	require.NoError(t, w.Flush())
	require.NoError(t, zip.Close())
	*p = append(*p, out.Bytes()...)
	for i := range items {
		items[i].Length = int64(out.Len())
	}
	return items
}

// A manifest says that its objects are small, and each lies in a member of 20 KiB that unpacks to
// 16 MiB: a hundred of them were read at once, since what the manifest says is all that the number
// of readers goes by.
func TestLargeMembersAreReadOneAtATime(t *testing.T) {
	t.Parallel()
	var data packed
	large, small := data.addMember(t, 1, 8<<20), data.addMember(t, 100)
	s := newSource(nil, data, Limits{CacheBytes: 1 << 20})
	s.gate <- struct{}{} // another one is being read
	_, err := s.Read(t.Context(), small[0])
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Read(ctx, large[0])
	require.ErrorIs(t, err, context.Canceled)
	<-s.gate
	body, err := s.Read(t.Context(), large[0])
	require.NoError(t, err)
	require.Len(t, body, 1)
	require.Empty(t, s.gate, "the next one may be read")
	require.LessOrEqual(t, s.cache.size, int64(1<<20), "a member larger than the cache does not stay in it")
	require.Len(t, s.cache.slots, 1)
}

// A member of 64 KiB held 128 MiB of other objects' bodies in memory for the sake of one.
func TestAMemberOfManyLargeBodiesIsNotRead(t *testing.T) {
	t.Parallel()
	var data packed
	items := data.addMember(t, 5<<20, 5<<20, 5<<20)
	_, err := newSource(nil, data, Limits{}).Read(t.Context(), items[0])
	require.ErrorIs(t, err, ErrTooLarge)
}
