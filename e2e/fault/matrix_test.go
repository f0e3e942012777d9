package fault

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// least is how many points each service has to have.
var least = map[string]int{"backup-runner": 25, "restore-runner": 15, "queue-scheduler": 5, "manifest-indexer": 5, "deletion": 5}

var (
	// A step of a list names its point in a field, which is hit where the list is run: stepPoint.
	hits   = regexp.MustCompile(`(?:failpoint\.Hit\(|\bFailpoint: )([^,)\n]*)`)
	shared = regexp.MustCompile(`failpoint\.HitIn\([^,]+, ([^)]*)\)`)
)

const stepPoint = "s.Failpoint"

// engines are the services whose jobs run on package engine, with its points that they do not
// reach.
var engines = map[string][]string{
	"restore-runner": nil,
	"backup-runner":  nil,
	"deletion":       {"commit-marked", "before-terminal", "terminal-written"}, // it ends by the removal of its object
}

// sharedPoints adds the points of a file that several services run.
func sharedPoints(t *testing.T, path, text string, found map[string]string) {
	t.Helper()
	for _, hit := range shared.FindAllStringSubmatch(text, -1) {
		step := strings.Trim(hit[1], `"`)
		require.Equal(t, `"`+step+`"`, hit[1], "%s: a step's name is a literal", path)
		for service, unreached := range engines {
			name := service + "/" + step
			if slices.Contains(unreached, step) {
				continue
			}
			require.NotContains(t, found, name, "%s and %s", path, found[name])
			found[name] = path
		}
	}
}

// pointsInSource finds every call of failpoint.Hit and failpoint.HitIn in product code.
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
				if hit[1] == stepPoint {
					continue
				}
				name := strings.Trim(hit[1], `"`)
				require.Equal(t, `"`+name+`"`, hit[1], "%s: a point's name is a literal", path)
				require.NotContains(t, found, name, "%s and %s", path, found[name])
				found[name] = path
			}
			sharedPoints(t, path, string(text), found)
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
	for _, c := range slices.Concat(Pauses, Admissions) {
		require.Contains(t, source, c.Point)
	}
}
