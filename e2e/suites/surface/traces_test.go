package surface

import (
	"testing"

	"github.com/stretchr/testify/require"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// testTraces requires one trace for each job, which runs from its validation through NATS to its end.
func (b *bed) testTraces(t *testing.T) {
	first := b.wholeTrace(t, "backups", "by-rpc", "backup-runner", []string{"backup", "process backup.run", "publish backup.run", "admit backup", "queue backup"})
	second := b.wholeTrace(t, "backups", "by-kubectl", "backup-runner", []string{"backup", "process backup.run", "publish backup.run", "admit backup", "queue backup"})
	restore := b.wholeTrace(t, "restores", "again", "restore-runner", []string{"process restore.run", "publish restore.run", "validate restore"})
	require.NotEqual(t, first, second)
	require.NotEqual(t, first, restore)
}

// wholeTrace checks the trace of one job and returns its id. path are the names of the spans on the
// way from the runner's innermost one to the root; others may lie between.
func (b *bed) wholeTrace(t *testing.T, resource, name, runner string, path []string) string {
	t.Helper()
	uid := b.runKubectl(t, "", "get", resource+".velero.io", "-n", "velero", name, "-o", "jsonpath={.metadata.uid}")
	var way []traceSpan
	require.Eventually(t, func() bool {
		for _, s := range b.collector.spansAbout(uid) {
			if s.service == runner && s.name == path[0] {
				if way = spanAncestors(s, b.collector.spansOf(s.trace)); containsPath(way, path) {
					return true
				}
			}
		}
		return false
	}, patience, look, "%v lead from %s to the root; received: %+v", path, runner, b.collector.spansAbout(uid))

	root := way[len(way)-1]
	require.Empty(t, root.parent, "%+v", root)
	require.Equal(t, "queue-scheduler", root.service)
	for i, s := range way {
		if s.kind == tracev1.Span_SPAN_KIND_CONSUMER {
			require.Equal(t, runner, s.service)
			require.Equal(t, tracev1.Span_SPAN_KIND_PRODUCER, way[i+1].kind, "the message's header names the span that sent it")
		}
	}
	for _, s := range b.collector.spansAbout(uid) {
		require.Equal(t, root.trace, s.trace, "%s of %s is in a trace of its own", s.name, s.service)
	}
	for _, s := range b.collector.spansOf(root.trace) {
		if about := s.attributes["holdfast.object.uid"]; about != "" {
			require.Equal(t, uid, about, "%s of %s is about something else", s.name, s.service)
		}
	}
	return root.trace
}

// spanAncestors returns a span, its parent and so on, as far as they are there.
func spanAncestors(s traceSpan, all map[string]traceSpan) []traceSpan {
	way := []traceSpan{s}
	for len(way) <= len(all) {
		parent, found := all[way[len(way)-1].parent]
		if !found {
			break
		}
		way = append(way, parent)
	}
	return way
}

// containsPath reports whether spans of these names are on the way, in this order.
func containsPath(way []traceSpan, path []string) bool {
	for _, s := range way {
		if len(path) > 0 && s.name == path[0] {
			path = path[1:]
		}
	}
	return len(path) == 0
}
