package fault

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/testbed"
)

// least is how many points each service has to have.
var least = map[string]int{"backup-runner": 25, "restore-runner": 15, "queue-scheduler": 5, "manifest-indexer": 5, "deletion": 5}

var hits = regexp.MustCompile(`failpoint\.Hit\(([^)]*)\)`)

// pointsInSource finds every call of failpoint.Hit in product code.
func pointsInSource(t *testing.T) map[string]string {
	t.Helper()
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	found := map[string]string{}
	for _, dir := range []string{"services", "pkg"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, hit := range hits.FindAllStringSubmatch(string(text), -1) {
				name := strings.Trim(hit[1], `"`)
				require.Equal(t, `"`+name+`"`, hit[1], "%s: a point's name is a literal", path)
				require.NotContains(t, found, name, "%s and %s", path, found[name])
				found[name] = path
			}
			return err
		}))
	}
	return found
}

func TestMatrixNamesEveryPoint(t *testing.T) {
	source := pointsInSource(t)
	named, count := map[string]bool{}, map[string]int{}
	for _, c := range Matrix {
		require.Contains(t, source, c.Point, "the matrix names a point that is not there")
		require.Contains(t, Scenarios, c.Scenario, c)
		if !named[c.Point] {
			count[c.Service()]++
		}
		named[c.Point] = true
	}
	for point, path := range source {
		require.True(t, named[point], "no case reaches %s of %s", point, path)
	}
	for service, n := range least {
		require.GreaterOrEqual(t, count[service], n, service)
	}
	require.GreaterOrEqual(t, len(Pauses), 10)
	for _, c := range Pauses {
		require.Contains(t, source, c.Point)
	}
	for _, point := range Admissions {
		require.Contains(t, source, point)
	}
}

func TestFiveDaysCoverTheMatrix(t *testing.T) {
	now := time.Date(2026, 3, 30, 23, 59, 0, 0, time.UTC)
	seen := map[string]int{}
	for day := range parts {
		chosen, err := Select(Matrix, Case.String, "", now.AddDate(0, 0, day))
		require.NoError(t, err)
		require.LessOrEqual(t, len(chosen), len(Matrix)/parts+1)
		for _, c := range chosen {
			seen[c.String()]++
		}
	}
	require.Len(t, seen, len(Matrix), "every case, and none twice")
	for _, part := range []string{"0/5", "6/5", "["} {
		_, err := Select(Matrix, Case.String, part, now)
		require.ErrorContains(t, err, "FAULT_PART", part)
	}
	one, err := Select(Matrix, Case.String, "deletion/claimed", now)
	require.NoError(t, err)
	require.Len(t, one, 1)
	all, err := Select(Matrix, Case.String, "all", now)
	require.NoError(t, err)
	require.Len(t, all, len(Matrix))
}
