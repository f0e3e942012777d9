package caller_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/caller"
	"github.com/holdfast-io/holdfast/pkg/service/private"
)

func TestTokenOfARun(t *testing.T) {
	dir := t.TempDir()
	first, err := caller.CreateToken(dir)
	require.NoError(t, err)
	second, err := caller.CreateToken(dir)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "a token that leaked ends with its run")
	read, err := caller.ReadToken(caller.TokenPath(dir))
	require.NoError(t, err)
	require.Equal(t, second, read)
	require.NoError(t, os.Chmod(caller.TokenPath(dir), 0o644)) //nolint:gosec // that is the point
	_, err = caller.ReadToken(caller.TokenPath(dir))
	require.ErrorIs(t, err, private.ErrNotOurs)
	require.NoError(t, caller.RemoveToken(dir))
	require.NoError(t, caller.RemoveToken(dir))
	_, err = caller.ReadToken(caller.TokenPath(dir))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestOnlyTheTokenLetsIn(t *testing.T) {
	authorize := caller.AuthorizeToken("right")
	call := func(values ...string) error {
		md := metadata.MD{}
		md.Append("authorization", values...)
		_, err := authorize(metadata.NewIncomingContext(t.Context(), md), "/x/y")
		return err
	}
	require.NoError(t, call("Bearer right"))
	require.NoError(t, call("bearer right"))
	for _, bad := range [][]string{nil, {"Bearer wrong"}, {"Bearer righ"}, {"Bearer right "}, {"Bearer "}, {"right"}, {"Basic right"}, {"Bearer right", "Bearer right"}} {
		require.ErrorIs(t, call(bad...), errgrpc.ErrUnauthenticated, bad)
		require.NotContains(t, call(bad...).Error(), "right")
	}
}
