package app

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/nativesnapshot"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

// snapshotSource opens the volume snapshotters of plugins, in processes of one backup.
type snapshotSource struct {
	host    *pluginhost.Host
	base    service.Base
	reader  client.Reader
	csi     *csiSupport
	workDir string
}

func (s *snapshotSource) openTaker(ctx context.Context, backup *velerov1.Backup, note func(joblog.Entry)) *volumes.Taker {
	session := s.host.Open(ctx, pluginhost.ServiceLog(s.base, note))
	locations := &nativesnapshot.Opener{Reader: nativesnapshot.RetryingReader(s.reader, s.base.Clock, s.base.Log), Namespace: s.base.Options.Namespace, Session: session, WorkDir: s.workDir}
	return &volumes.Taker{
		Backup: backup, Locations: locations, CSI: s.csi.whyNotCSI(backup),
		Close: sync.OnceFunc(func() {
			session.Close()
			if err := locations.Close(); err != nil {
				s.base.Log.Warn("Failed to remove the credentials of VolumeSnapshotLocations; they stay on the disk", "backup", backup.Name, "error", err)
			}
		}),
	}
}
