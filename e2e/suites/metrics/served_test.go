package metrics_test

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// scrapeSeries is what one process serves: its series, by name with labels, with their values as texts.
func scrapeSeries(t *testing.T, address string) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(text))
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndex(strings.TrimSpace(line), " "); at > 0 && !strings.HasPrefix(line, "#") {
			found[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return found
}

// scrapeAll is what all processes serve: the values of a series in each that has it.
func scrapeAll(t *testing.T, s *site.Site) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, member := range s.Fleet.Members {
		for name, value := range scrapeSeries(t, member.HTTP) {
			all[name] = append(all[name], value)
		}
	}
	return all
}

// metricNames are the names of the metrics of series.
func metricNames(series map[string][]string) map[string]bool {
	found := map[string]bool{}
	for name := range series {
		name, _, _ = strings.Cut(name, "{")
		found[name] = true
		found[histogram.ReplaceAllString(name, "")] = true
	}
	return found
}

// With two replicas of each service: what is documented is served, what is served is documented,
// gauges of objects are served once, counters exist at zero for a Schedule and go with it.
func TestWhatTheServicesServe(t *testing.T) {
	s := site.Start(t, site.Config{Replicas: 2})
	bucket, dir := site.FileBucket(t, "default")
	s.ReachFiles(t, dir, bucket)
	s.Estate(t, "shop", 3, 100)
	schedule := &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "daily"}, Spec: velerov1.ScheduleSpec{
		Schedule: "0 3 * * *", SkipImmediately: new(bool), Template: velerov1.BackupSpec{StorageLocation: bucket.Location, IncludedNamespaces: []string{"shop"}},
	}}
	*schedule.Spec.SkipImmediately = true
	require.NoError(t, s.Client.Create(t.Context(), schedule))
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: "daily-1", Labels: map[string]string{velerov1.LabelScheduleName: "daily"}},
		Spec:       schedule.Spec.Template,
	}
	require.NoError(t, s.Client.Create(t.Context(), backup))
	require.Equal(t, velerov1.BackupPhaseCompleted, s.BackupEnds(t, "daily-1").Status.Phase)
	s.Restore(t, "again", "daily-1", "shop", "copy")
	require.Equal(t, velerov1.RestorePhaseCompleted, s.RestoreEnds(t, "again").Status.Phase)

	const of = `{schedule="daily"}`
	once := map[string]string{
		"velero_backup_total": "1", "velero_restore_total": "1", "velero_backup_last_status" + of: "1",
		"holdfast_schedule_interval_seconds" + of: "86400", `holdfast_queue_depth{kind="Backup"}`: "0",
		`velero_backup_location_status_gauge{backup_location_name="` + bucket.Location + `"}`: "1",
	}
	var all map[string][]string
	// What follows the phase: counters, caches, and the duties that show gauges.
	require.Eventually(t, func() bool {
		all = scrapeAll(t, s)
		counted := slices.Contains(all["velero_backup_success_total"+of], "1") && slices.Contains(all["velero_restore_success_total"+of], "1")
		for series, value := range once {
			counted = counted && slices.Equal(all[series], []string{value})
		}
		return counted && len(all["velero_backup_deletion_failure_total"+of]) == 2 && len(all["velero_backup_failure_total"+of]) == 4
	}, site.Patience, site.Look, "each object is counted once")
	for _, name := range []string{"velero_backup_tarball_size_bytes", "velero_backup_last_successful_timestamp", "velero_backup_items_total", "velero_backup_items_errors"} {
		require.Len(t, all[name+of], 1, name)
	}
	compareWithDocumentation(t, all)

	require.NoError(t, s.Client.Delete(t.Context(), schedule, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	require.Eventually(t, func() bool {
		for series := range scrapeAll(t, s) {
			if strings.Contains(series, `schedule="daily"`) {
				return false
			}
		}
		return true
	}, site.Patience, site.Look, "nothing is left of the schedule")
	require.Equal(t, []string{"1"}, scrapeAll(t, s)["velero_backup_total"])
}

// compareWithDocumentation compares the names that are served with docs/metrics.md.
func compareWithDocumentation(t *testing.T, all map[string][]string) {
	t.Helper()
	known, served := documentedMetrics(t), metricNames(all)
	for name, always := range known {
		if always {
			require.Contains(t, served, name, "documented and not served")
		}
	}
	foreign := regexp.MustCompile(`^(?:go|process|promhttp|controller_runtime|rest_client|workqueue|certwatcher|leader_election)_`)
	for series := range all {
		name, _, _ := strings.Cut(series, "{")
		_, exact := known[name]
		_, of := known[histogram.ReplaceAllString(name, "")]
		require.True(t, exact || of || foreign.MatchString(name), "%s is served and not documented", name)
	}
}
