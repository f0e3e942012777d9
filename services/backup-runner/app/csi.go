package app

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finalize"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/job"
)

// csiSupport takes CSI snapshots where the feature is on; nil is off.
type csiSupport struct{ api csisnapshot.API }

func newCSI(base service.Base, api csisnapshot.API) *csiSupport {
	if !slices.Contains(base.Options.Features, service.FeatureCSI) {
		return nil
	}
	return &csiSupport{api}
}

// openSnapshotter returns what takes the snapshots of a backup; nil where none are taken: the cluster does not
// serve the snapshot API, or the backup is not to have data of volumes.
func (c *csiSupport) openSnapshotter(backup *velerov1.Backup, catalog *resource.Catalog, lock job.Lock, note func(joblog.Entry)) *csisnapshot.Snapshotter {
	if c == nil || backup.Spec.SnapshotVolumes != nil && !*backup.Spec.SnapshotVolumes {
		return nil
	}
	for _, gr := range snapshotAsks {
		if _, served := catalog.Lookup(gr); !served {
			return nil
		}
	}
	return &csisnapshot.Snapshotter{API: c.api, Backup: backup, Lock: lock, Warn: func(message string) {
		note(joblog.Entry{Time: c.api.Clock.Now(), Level: joblog.Warning, Message: message, Source: "holdfast/backup-runner"})
	}}
}

// whyNotCSI is snapshot.Taker's CSI.
func (c *csiSupport) whyNotCSI(backup *velerov1.Backup) func(context.Context, *corev1.PersistentVolume) error {
	if c == nil {
		return nil
	}
	return (&csisnapshot.Snapshotter{API: c.api, Backup: backup}).WhyNotTaken
}

// snapshotRemover is what removes the objects of snapshots.
func (c *csiSupport) snapshotRemover() finalize.Snapshots {
	if c == nil {
		return nil
	}
	return c.api
}
