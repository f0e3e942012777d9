package fault

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func part(t *testing.T, value, commit string) Part {
	t.Helper()
	p, err := ParsePart(value, commit)
	require.NoError(t, err)
	return p
}

func TestTheFifthsAreEverythingOnce(t *testing.T) {
	seen := map[string]int{}
	for n := range parts {
		chosen := Select(part(t, fmt.Sprintf("%d/%d", n+1, parts), ""), Matrix, Case.String)
		require.LessOrEqual(t, len(chosen), len(Matrix)/parts+1)
		for _, c := range chosen {
			seen[c.String()]++
		}
	}
	require.Len(t, seen, len(Matrix))
	for name, n := range seen {
		require.Equal(t, 1, n, name)
	}
}

// A run of all tests covers what matters most whatever the commit, and the same for the same commit
// on any day.
func TestTheCommitChoosesBesideWhatIsAlwaysRun(t *testing.T) {
	others := map[string]bool{}
	for n := range 50 {
		commit := fmt.Sprintf("%040x", n)
		chosen := Select(part(t, "", commit), Matrix, Case.String)
		require.Equal(t, chosen, Select(part(t, "", commit), Matrix, Case.String))
		require.LessOrEqual(t, len(chosen), len(always)+(len(Matrix)-len(always))/parts+1)
		fixed := 0
		for _, c := range chosen {
			others[c.String()] = true
			for _, name := range always {
				if c.String() == name {
					fixed++
				}
			}
		}
		require.Equal(t, len(always), fixed)
	}
	require.Len(t, always, 20)
	require.Len(t, others, len(Matrix), "every case has its commits")
}

// With a misspelt name a run was green that had tested nothing.
func TestAPartThatSelectsNothingFails(t *testing.T) {
	_, err := Choose(part(t, "restore-runner/no-such-step", ""))
	require.ErrorIs(t, err, ErrNoCase)
	one, err := Choose(part(t, "^deletion/claimed", ""))
	require.NoError(t, err)
	require.Len(t, one.Kills, 1)
	require.Empty(t, one.Undisturbed)
	everything, err := Choose(part(t, "all", ""))
	require.NoError(t, err)
	require.Len(t, everything.Kills, len(Matrix))
	for _, bad := range []string{"0/5", "6/5", "["} {
		_, err := ParsePart(bad, "")
		require.ErrorContains(t, err, "FAULT_PART", bad)
	}
}
