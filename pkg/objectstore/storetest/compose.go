package storetest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func checkCompose(t *testing.T, s objectstore.Store) {
	putObject(t, s, "p/1", "one")
	putObject(t, s, "p/2", "0123456789")
	putObject(t, s, "p/empty", "")
	info, err := s.Compose(t.Context(), "whole", []objectstore.Source{
		{Data: []byte("<")}, {Key: "p/1", Length: -1}, {Key: "p/empty", Length: -1}, {Key: "p/2", Offset: 2, Length: 3},
		{Key: "p/2", Offset: 8, Length: -1}, {Data: []byte{}}, {Key: "p/2", Offset: 10, Length: -1}, {Key: "p/2", Offset: 4, Length: 0},
		{Key: "p/1", Length: 3}, {Data: []byte(">")},
	})
	require.NoError(t, err)
	require.Equal(t, "<one23489one>", getObject(t, s, "whole"))
	require.Equal(t, "whole", info.Key)
	require.EqualValues(t, 13, info.Size)
	stat, err := s.Stat(t.Context(), "whole")
	require.NoError(t, err)
	require.Equal(t, stat.ETag, info.ETag)
	require.Equal(t, "one", getObject(t, s, "p/1"), "sources stay")

	_, err = s.Compose(t.Context(), "nothing", nil)
	require.NoError(t, err)
	require.Empty(t, getObject(t, s, "nothing"))
}

// checkComposeLarge mixes sizes around the 5 MiB that S3 requires of each part, with many tiny
// sources in between.
func checkComposeLarge(t *testing.T, s objectstore.Store) {
	const mib = 1 << 20
	var want bytes.Buffer
	var src []objectstore.Source
	for i, n := range []int{100, 6 * mib, 3 * mib, 4 * mib, 5 * mib, 5*mib - 1, 11 * mib, 1, 12 * mib, 2 * mib} {
		data := patternBytes(n, byte(i*7))
		key := fmt.Sprintf("parts/%02d", i)
		require.NoError(t, objectstore.PutBytes(t.Context(), s, key, data))
		src = append(src, objectstore.Source{Key: key, Length: int64(n)}, objectstore.Source{Data: []byte("|literal|")})
		want.Write(data)
		want.WriteString("|literal|")
	}
	for i := range 200 {
		tiny := fmt.Appendf(nil, "tiny source %d;", i)
		src = append(src, objectstore.Source{Data: tiny})
		want.Write(tiny)
	}
	src = append(src, objectstore.Source{Key: "parts/06", Offset: mib, Length: 9 * mib})
	want.Write(patternBytes(11*mib, 42)[mib : 10*mib])
	info, err := s.Compose(t.Context(), "large", src)
	require.NoError(t, err)
	require.EqualValues(t, want.Len(), info.Size)
	require.True(t, want.String() == getObject(t, s, "large"), "composed content differs")
}

func checkComposeErrors(t *testing.T, s objectstore.Store) {
	putObject(t, s, "p", "0123456789")
	putObject(t, s, "taken", "before")
	compose := func(key string, src ...objectstore.Source) error {
		_, err := s.Compose(t.Context(), key, src)
		return err
	}
	err := compose("new", objectstore.Source{Key: "p", Length: -1}, objectstore.Source{Key: "gone", Length: -1})
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	require.ErrorContains(t, err, "gone")
	err = compose("new", objectstore.Source{Key: "gone", Length: 3})
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	for _, bad := range []objectstore.Source{{Key: "p", Offset: 8, Length: 3}, {Key: "p", Offset: -1, Length: 3}, {Key: "p", Offset: 11, Length: -1}} {
		require.ErrorIs(t, compose("new", bad), objectstore.ErrInvalidRange, "%+v", bad)
	}
	requireAbsent(t, s, "new")
	require.ErrorIs(t, compose("taken", objectstore.Source{Key: "p", Length: -1}), objectstore.ErrExists)
	require.Equal(t, "before", getObject(t, s, "taken"))
}

func checkComposeRace(t *testing.T, s objectstore.Store) {
	putObject(t, s, "of", " of ")
	checkOneWinner(t, s, "race", raceCalls(t.Context(), 8, func(ctx context.Context, i int) error {
		_, err := s.Compose(ctx, "race", []objectstore.Source{
			{Data: []byte("content")}, {Key: "of", Length: -1}, {Data: fmt.Append(nil, i)},
		})
		return err
	}))
	// Large enough to be a multipart upload where there is such a thing.
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "six", patternBytes(6<<20, 3)))
	winners := 0
	for _, err := range raceCalls(t.Context(), 4, func(ctx context.Context, i int) error {
		_, err := s.Compose(ctx, "big race", []objectstore.Source{{Key: "six", Length: 6 << 20}, {Data: fmt.Append(nil, i)}})
		return err
	}) {
		if err == nil {
			winners++
		} else {
			require.ErrorIs(t, err, objectstore.ErrExists)
		}
	}
	require.Equal(t, 1, winners)
}
