package partwriter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
)

func TestLinesThatDoNotFitAreCountedAtTheirHighestLevel(t *testing.T) {
	var lines partwriter.PluginLines
	long, at := strings.Repeat("x", 1<<20), time.Unix(1700000000, 0)
	for i := range 8 {
		level := joblog.Info
		if i == 6 {
			level = joblog.Error
		}
		lines.Add(joblog.Entry{Level: level, Message: long, Time: at.Add(time.Duration(i) * time.Second)})
	}
	got := lines.Take()
	require.Len(t, got, 4)
	last := got[3]
	require.Equal(t, joblog.Error, last.Level)
	require.Equal(t, at.Add(7*time.Second), last.Time)
	require.Contains(t, last.Message, "5 lines were dropped")
	require.Empty(t, lines.Take())

	lines.Add(joblog.Entry{Message: "after"})
	require.Len(t, lines.Take(), 1, "there is room again")
	require.Empty(t, (*partwriter.PluginLines)(nil).Take())
}
