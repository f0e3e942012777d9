package app

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// snapshotterSets opens for each restore the volume snapshotters of plugins, in processes of its own
// that start when they are needed.
func (a *App) snapshotterSets(base service.Base) func(context.Context, func(joblog.Entry)) (restore.Snapshotters, func()) {
	return func(ctx context.Context, note func(joblog.Entry)) (restore.Snapshotters, func()) {
		session := a.plugins.Open(ctx, pluginhost.ServiceLog(base, note))
		locations := &nativesnapshot.Opener{
			Reader:    nativesnapshot.RetryingReader(a.runtime.Manager().GetAPIReader(), base.Clock, base.Log),
			Namespace: base.Options.Namespace, Session: session, WorkDir: a.runtime.WorkDir(),
		}
		return locations, func() {
			session.Close()
			if err := locations.Close(); err != nil {
				base.Log.Warn("Failed to remove the credentials of VolumeSnapshotLocations; they stay on the disk", "error", err)
			}
		}
	}
}
