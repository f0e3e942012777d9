package jobtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAShareUnlessEveryWriteIsAskedFor(t *testing.T) {
	t.Setenv(EveryWrite, "")
	require.Greater(t, Share(), 1)
	t.Setenv(EveryWrite, "1")
	require.Equal(t, 1, Share())
}
