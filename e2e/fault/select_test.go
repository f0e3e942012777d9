package fault

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func chooseFromPart(t *testing.T, value string) *Chosen {
	t.Helper()
	p, err := ParsePart(value)
	require.NoError(t, err)
	c, err := Choose(p)
	require.NoError(t, err)
	return c
}

// What every run covers has cases of each service and kind, and costs the same each time.
func TestEveryRunCoversEachServiceAndKindOfFault(t *testing.T) {
	c := chooseFromPart(t, "")
	require.GreaterOrEqual(t, c.countCases(), 38)
	require.LessOrEqual(t, c.countCases(), 48)
	services := map[string]bool{}
	for _, k := range c.Kills {
		services[k.Service()] = true
	}
	require.Len(t, services, 6)
	require.NotEmpty(t, c.Pauses)
	require.NotEmpty(t, c.Leaders)
	require.NotEmpty(t, c.Mutants, "the run shows that it can fail")
}

func TestAllIsEveryCase(t *testing.T) {
	c := chooseFromPart(t, "all")
	require.Equal(t, len(Scenarios)+len(Matrix)+len(Pauses)+len(Admissions)+len(Mutants), c.countCases())
}

// With a misspelt name a run was green that had tested nothing.
func TestAPartThatSelectsNothingFails(t *testing.T) {
	p, err := ParsePart("restore-runner/no-such-step")
	require.NoError(t, err)
	_, err = Choose(p)
	require.ErrorIs(t, err, ErrNoCase)
	require.Equal(t, 1, chooseFromPart(t, "^deletion/claimed").countCases())
	_, err = ParsePart("[")
	require.ErrorContains(t, err, "FAULT_PART")
}
