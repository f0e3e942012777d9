package jobtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAShareUnlessEveryWriteIsAskedFor(t *testing.T) {
	t.Setenv(EveryWrite, "")
	require.Greater(t, WriteStride(), 1)
	t.Setenv(EveryWrite, "1")
	require.Equal(t, 1, WriteStride())
}
