package metrics_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/e2e/harness/chart"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// ours are names of metrics of Holdfast, in whatever text.
var ours = regexp.MustCompile(`\b(?:velero|holdfast)_[a-z0-9_]+`)

// row is one of the table in docs/metrics.md.
var row = regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|.*\\|$")

// histogram is what Prometheus adds to the name of a histogram.
var histogram = regexp.MustCompile(`_(?:bucket|sum|count)$`)

// documentedMetrics are the metrics in docs/metrics.md, and whether each is there from the start on.
func documentedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, match := range row.FindAllStringSubmatch(readFile(t, "docs/metrics.md"), -1) {
		require.NotContains(t, found, match[1], "listed twice")
		found[match[1]] = !strings.Contains(match[0], "once used")
	}
	require.Greater(t, len(found), 40)
	return found
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	root, err := testbed.RepositoryRoot()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

func chartFile(t *testing.T, name string) string {
	t.Helper()
	dir, err := chart.Dir()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "files", name))
	require.NoError(t, err)
	return string(text)
}

// usedQueries are the expressions of the alerts and of the dashboard, by where they stand.
func usedQueries(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, alert := range readAlerts(t) {
		found["alert "+alert.Alert] = alert.Expr
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(chartFile(t, "dashboard.json")), &dashboard))
	for _, panel := range dashboard.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			found["panel "+panel.Title+": "+target.Expr] = target.Expr
		}
	}
	for _, variable := range dashboard.Templating.List {
		found["variable "+variable.Name] = variable.Definition
	}
	return found
}

// metricAlert is a rule of the chart.
type metricAlert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func readAlerts(t *testing.T) []metricAlert {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []metricAlert }
	}
	require.NoError(t, yaml.Unmarshal([]byte(chartFile(t, "alerts.yaml")), &file))
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

// Whatever an alert or the dashboard asks for is documented, and so, by the test of running
// services, served.
func TestQueriesNameMetricsThatExist(t *testing.T) {
	known := documentedMetrics(t)
	for where, query := range usedQueries(t) {
		for _, name := range ours.FindAllString(query, -1) {
			_, exact := known[name]
			_, of := known[histogram.ReplaceAllString(name, "")]
			require.True(t, exact || of, "%s names %s", where, name)
		}
	}
}

// Each alert has a section in the runbooks, which its link leads to, and each section an alert.
func TestEachAlertHasARunbook(t *testing.T) {
	sections := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(readFile(t, "docs/runbooks.md"), -1) {
		sections[match[1]] = true
	}
	named := map[string]bool{}
	for _, alert := range readAlerts(t) {
		named[alert.Alert] = true
		require.Equal(t, "https://github.com/holdfast-io/holdfast/blob/main/docs/runbooks.md#"+strings.ToLower(alert.Alert), alert.Annotations["runbook_url"])
		require.NotEmpty(t, alert.Annotations["summary"])
		require.Contains(t, []string{"critical", "warning"}, alert.Labels["severity"])
	}
	require.Equal(t, slices.Sorted(maps.Keys(named)), slices.Sorted(maps.Keys(sections)))
}
