package idle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
)

const (
	// settling is after how long nothing of the start is left: the last instance is idle.
	settling = 90 * time.Second
	// window is a multiple of what services repeat: locations and Leases are looked at every minute at
	// the longest, but for what is done once an hour. One more or less at its ends does not matter.
	window = 5 * time.Minute
)

// TestIdleServicesMakeFewRequests starts the services with a location and no job, and counts their
// requests in the API server's audit log. One that watches is counted when it ends.
func TestIdleServicesMakeFewRequests(t *testing.T) {
	t.Parallel()
	for replicas, most := range map[int]int{1: 60, 2: 250} {
		t.Run(fmt.Sprintf("%d of each", replicas), func(t *testing.T) {
			t.Parallel() // both wait
			s := site.Start(t, site.Config{Replicas: replicas})
			bucket, files := site.FileBucket(t, "default")
			s.ReachFiles(t, files, bucket)
			<-time.After(settling)
			begin := time.Now()
			<-time.After(window)
			made := countRequests(t, s.Audit.Path(), begin, begin.Add(window))
			minute, total := float64(window)/float64(time.Minute), 0
			for _, what := range slices.Sorted(maps.Keys(made)) {
				total += made[what]
				t.Logf("%5.1f a minute: %s", float64(made[what])/minute, what)
			}
			perMinute := float64(total) / minute
			t.Logf("%5.1f a minute in all", perMinute)
			require.Less(t, perMinute, float64(most))
			require.Greater(t, perMinute, 1.0, "what is counted is there")
		})
	}
}

// countRequests counts the requests of the services between two moments, by who made them and what they
// are.
func countRequests(t *testing.T, log string, from, to time.Time) map[string]int {
	t.Helper()
	file, err := os.Open(log)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	made := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb, UserAgent, RequestURI, Stage string
			StageTimestamp                     time.Time
			ObjectRef                          struct{ Resource, Name string }
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		agent, ours := strings.CutPrefix(e.UserAgent, "holdfast-")
		if !ours || e.Stage == "ResponseStarted" || e.StageTimestamp.Before(from) || e.StageTimestamp.After(to) {
			continue
		}
		service, _, _ := strings.Cut(agent, "/")
		what := e.ObjectRef.Resource
		if what == "" {
			what, _, _ = strings.Cut(e.RequestURI, "?")
		}
		if e.ObjectRef.Resource == "leases" && strings.HasPrefix(e.ObjectRef.Name, "holdfast-duty-") {
			what = "leases of duties"
		}
		made[service+" "+e.Verb+" "+what]++
	}
	require.NoError(t, lines.Err())
	return made
}
