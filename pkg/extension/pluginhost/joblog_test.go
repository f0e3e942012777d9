package pluginhost_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
)

func TestLinesOfPluginsAreLinesOfTheJob(t *testing.T) {
	var mu sync.Mutex
	var got []joblog.Entry
	log := pluginhost.JobLog(slog.LevelError, func(e joblog.Entry) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, e)
	})
	s := newVendorHost(t, nil).Open(t.Context(), log)
	require.NoError(t, callers["DeleteItemAction"](t, s, "flood"))
	s.Close()
	require.Len(t, got, 5000, "debug lines are left out")
	first := got[0]
	require.False(t, first.Time.IsZero())
	require.Equal(t, joblog.Entry{Time: first.Time, Level: joblog.Error, Message: "line 0", Source: "vendor/x.go:1"}, first)
}

func TestNoFieldOfAPluginsLineIsLost(t *testing.T) {
	t.Parallel()
	var got []joblog.Entry
	log := pluginhost.JobLog(slog.LevelDebug, func(e joblog.Entry) { got = append(got, e) })
	log.With("a", 1).WithGroup("g").With("b", 2).Warn("m", "c", 3)
	log.Info("n", "error", "broken", "plugin", "vendor")
	log.Debug("o")
	for i := range got {
		got[i].Time = got[0].Time
	}
	require.Equal(t, []joblog.Entry{
		{Time: got[0].Time, Level: joblog.Warning, Message: "m a=1 g.b=2 g.c=3", Source: "plugin"},
		{Time: got[0].Time, Level: joblog.Info, Message: "n", Err: "broken", Source: "vendor"},
		{Time: got[0].Time, Level: joblog.Debug, Message: "o", Source: "plugin"},
	}, got)
}
