package job

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// plugins opens one action. Like a plugin's process, it starts at the first question and not beyond
// the end of what it was opened with.
type plugins struct {
	start   func(opened context.Context) error
	execute func(o *action.Object) (action.BackupResult, error)

	mu            sync.Mutex
	asked, called int
}

func (p *plugins) Open(ctx context.Context, _ *velerov1.Backup, _ *resource.Catalog, _ *selection.Filter, _ func(joblog.Entry), _ Lock) collect.Actions {
	return collect.Actions{Items: []action.BackupItem{&opened{p, ctx}}, Close: func() {}}
}

type opened struct {
	*plugins
	ctx context.Context //nolint:containedctx // as a session does
}

func (*opened) Name() string { return "a.io/plugin" }

func (o *opened) AppliesTo(context.Context) (action.Selector, error) {
	o.mu.Lock()
	o.asked++
	o.mu.Unlock()
	return action.Selector{}, o.start(o.ctx)
}

func (o *opened) Execute(_ context.Context, object *action.Object, _ *action.Backup) (action.BackupResult, error) {
	o.mu.Lock()
	o.called++
	o.mu.Unlock()
	if o.execute != nil {
		return o.execute(object)
	}
	return action.BackupResult{Object: object}, nil
}

// A plugin's process that is starting when the service stops has not failed: the backup goes to the
// next holder, which calls the plugin again.
func TestAStopWhileAPluginStartsIsAHandOver(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	ctx, cancel := context.WithCancelCause(t.Context())
	starts := &plugins{start: func(opened context.Context) error {
		cancel(errors.New("told to stop"))
		<-opened.Done()
		return errors.New("plugin a.io/plugin: AppliesTo: plugin process did not start")
	}}
	w.Actions = starts
	require.Error(t, w.Run(ctx, "b1", b.UID))
	got := w.readBackup(t, b)
	require.Equal(t, velerov1.BackupPhaseInProgress, got.Status.Phase)
	require.Zero(t, got.Status.Errors)

	next := &plugins{start: func(context.Context) error { return nil }}
	w.Actions = next
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	got = w.requireComplete(t, b, velerov1.BackupPhaseCompleted)
	require.Zero(t, got.Status.Errors)
	require.Equal(t, 1, next.asked)
	require.Equal(t, got.Status.Progress.ItemsBackedUp, next.called)
}

// leaping is a clock that a test puts forward.
type leaping struct {
	fastClock
	ahead atomic.Int64
}

func (c *leaping) Now() time.Time { return c.fastClock.Now().Add(time.Duration(c.ahead.Load())) }

// A runner that was paused for longer than its claim lasts makes sure of the claim before it calls
// an action again, and leaves the backup to its new holder.
func TestAPausedRunnerCallsNoActionOfAnothersBackup(t *testing.T) {
	w := newWorld(t)
	b := w.admitBackup(t, "b1")
	clk := &leaping{}
	var lost atomic.Bool
	pauses := &plugins{start: func(context.Context) error { return nil }, execute: func(o *action.Object) (action.BackupResult, error) {
		clk.ahead.Add(int64(time.Minute))
		lost.Store(true)
		return action.BackupResult{Object: o}, nil
	}}
	w.Clock, w.Actions = clk, pauses
	w.instance.ConfirmWith = func(client.Object) error {
		if lost.Load() {
			return claim.ErrLost
		}
		return nil
	}
	require.NoError(t, w.Run(t.Context(), "b1", b.UID))
	require.Equal(t, 1, pauses.called)
	require.Equal(t, velerov1.BackupPhaseInProgress, w.readBackup(t, b).Status.Phase)
}
