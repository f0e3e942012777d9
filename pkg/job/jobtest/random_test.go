package jobtest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func randomNumbers(t *testing.T) (all []int) {
	t.Helper()
	s := Random(t)
	for range 20 {
		all = append(all, s.IntN(1<<30))
	}
	require.Less(t, s.Float64(), 1.0)
	return all
}

func TestASeedReplaysARun(t *testing.T) {
	t.Setenv(Variable, "")
	first, second := randomNumbers(t), randomNumbers(t)
	require.NotEqual(t, first, second)
	t.Setenv(Variable, "12345678901234567890")
	first, second = randomNumbers(t), randomNumbers(t)
	require.Equal(t, first, second)
}

func TestABadSeedIsRefused(t *testing.T) {
	t.Setenv(Variable, "yesterday")
	_, _, err := Seed()
	require.ErrorContains(t, err, "TEST_SEED")
}
