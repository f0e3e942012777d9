package pluginhost

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// newTestWorker is a worker of the test binary as a plugin.
func newTestWorker(t *testing.T) *worker {
	t.Helper()
	path := filepath.Join(selfplugin.Directory(t, "vendor"), "vendor")
	calls, err := newCallTimes(nil)
	require.NoError(t, err)
	w := newWorker(t.Context(), &processSpec{path: path, env: os.Environ(), log: slog.New(slog.DiscardHandler), clock: clock.RealClock{}, limits: Limits{}.withDefaults(), calls: calls})
	t.Cleanup(w.close)
	return w
}

func TestACallThatTheDeadProcessNeverSawIsMadeOnceMore(t *testing.T) {
	t.Parallel()
	w := newTestWorker(t)
	var seen []*process
	err := w.callProcess(t.Context(), pluginCall{who: who{KindDeleteItemAction, "test.io/echo"}, within: w.spec.limits.Execute}, func(ctx context.Context, p *process) error {
		seen = append(seen, p)
		if len(seen) == 1 { // it dies between the choice of the process and the call
			p.cmd.killProcess()
			<-p.cmd.exited
			return status.Error(codes.Unavailable, "connection refused")
		}
		_, err := velero.NewPluginListerClient(p.conn).ListPlugins(ctx, &velero.Empty{})
		return err
	})
	require.NoError(t, err)
	require.Len(t, seen, 2)
	require.NotEqual(t, seen[0].id, seen[1].id)
}
