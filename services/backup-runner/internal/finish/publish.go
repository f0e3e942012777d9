// Package finish publishes what was collected: the composed tarball, the merged
// files of Velero's layout, and last the metadata file that commits the backup.
//
// Every object is created once. A later holder of the same backup arrives at the
// same content, adopts what is there, and goes on.
package finish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/ending"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/part"
	"github.com/holdfast-io/holdfast/pkg/publish"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// Job is a backup to publish.
type Job struct {
	Backup *velerov1.Backup
	// Cluster is the UID of the cluster's namespace kube-system.
	Cluster string
	Store   objectstore.Store
	// Dir is a directory for files on their way to the bucket.
	Dir   string
	Clock clock.PassiveClock
	Log   *slog.Logger
}

// Published is what Publish put into the bucket.
type Published struct {
	TarballSize             int64
	Items, Warnings, Errors int
	// Snapshots are the native snapshots that were begun, Completed those of them
	// that came about.
	Snapshots, Completed int
}

// Publish creates every file of the backup but the metadata, following the
// composition.
func (j *Job) Publish(ctx context.Context, c checkpoint.Composition) (Published, error) {
	about := j.volumes()
	defer about.close()
	plan, err := j.plan(ctx, c, about)
	if err == nil {
		err = about.complete()
	}
	if err != nil {
		return Published{}, err
	}
	failpoint.Hit("backup-runner/plan-read")
	composed, err := publish.Compose(ctx, j.Store, plan)
	if err != nil {
		return Published{}, fmt.Errorf("compose the tarball: %w", err)
	}
	failpoint.Hit("backup-runner/tarball-composed")
	merged, err := publish.Merge(ctx, j.Store, plan, j.Dir)
	if err != nil {
		return Published{}, fmt.Errorf("merge the sidecars: %w", err)
	}
	failpoint.Hit("backup-runner/sidecars-merged")
	defer remove(merged.Manifest, merged.ResourceList, merged.Results, merged.Log)
	if err := j.files(ctx, merged, about); err != nil {
		return Published{}, err
	}
	return Published{TarballSize: composed.Size, Items: merged.Items + merged.Failed,
		Warnings: merged.Warnings, Errors: merged.Errors, Snapshots: about.begun, Completed: about.completed}, nil
}

// aboutVolumes is what the records say of volumes.
type aboutVolumes struct {
	info, snapshots  *volumes
	begun, completed int
	// undecided are the volumes of claims that no record tells the fate of.
	undecided map[string]struct{}
}

func (j *Job) volumes() *aboutVolumes {
	return &aboutVolumes{
		info:      newVolumes(filepath.Join(j.Dir, "volumeinfo.json.gz"), "[]\n"),
		snapshots: newVolumes(filepath.Join(j.Dir, "volumesnapshots.json.gz"), "null\n"), // as in Velero 1.18
		undecided: map[string]struct{}{},
	}
}

func (a *aboutVolumes) add(rec *checkpoint.Record) error {
	if err := a.info.add(rec.Volumes); err != nil {
		return err
	}
	for i := range rec.Volumes {
		switch v := &rec.Volumes[i]; {
		case !v.Pending:
			delete(a.undecided, v.PVName)
		case v.PVCName != "":
			a.undecided[v.PVName] = struct{}{}
		}
	}
	completed, err := a.snapshots.addSnapshots(rec.Snapshots)
	a.begun, a.completed = a.begun+len(rec.Snapshots), a.completed+completed
	return err
}

// errUndecided means that a backup would say nothing of volume data that it lacks.
var errUndecided = errors.New("no record tells what became of the data of volumes of the backup")

// complete returns an error naming volumes of which nothing would be published.
func (a *aboutVolumes) complete() error {
	if len(a.undecided) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(a.undecided))
	return fmt.Errorf("%w: %d of them, such as %q", errUndecided, len(names), names[0])
}

func (a *aboutVolumes) close() {
	a.info.close()
	a.snapshots.close()
}

// plan reads the records the composition names, a few at a time.
func (j *Job) plan(ctx context.Context, c checkpoint.Composition, about *aboutVolumes) (publish.Plan, error) {
	plan := ending.Plan(j.Backup, j.Cluster)
	if len(c.Revisions) > 0 {
		plan.Header.Revision = c.Revisions[0]
	}
	err := checkpoint.Each(ctx, j.Store, c.Backup, c.UID, c.Checkpoints, func(_ string, rec *checkpoint.Record) error {
		if p := rec.Part; p.SidecarKey != "" {
			plan.Parts = append(plan.Parts, publish.PartRef{Key: p.Key, Size: p.Size, SHA256: p.SHA256,
				SidecarKey: p.SidecarKey, SidecarSHA256: p.SidecarSHA256})
		}
		plan.Cuts = appendCuts(plan.Cuts, rec.Ranges, plan.Header.Revision)
		return about.add(rec)
	})
	return plan, err
}

// files publishes the merged files and the small ones. Without operations and
// file system backups those hold what Velero writes then: null and [].
func (j *Job) files(ctx context.Context, merged *publish.Merged, about *aboutVolumes) error {
	name := j.Backup.Name
	info, err := about.info.file()
	if err != nil {
		return err
	}
	defer remove(info)
	snapshots, err := about.snapshots.file()
	if err != nil {
		return err
	}
	defer remove(snapshots)
	null, err := jsonFile(filepath.Join(j.Dir, "null.json.gz"), []byte("null\n"))
	if err != nil {
		return err
	}
	defer remove(null)
	list, err := jsonFile(filepath.Join(j.Dir, "list.json.gz"), []byte("[]\n"))
	if err != nil {
		return err
	}
	defer remove(list)
	for _, f := range []struct {
		key  string
		file part.File
	}{
		{layout.BackupManifest(name), merged.Manifest},
		{layout.BackupResourceList(name), merged.ResourceList},
		{layout.BackupResults(name), merged.Results},
		{layout.BackupVolumeInfo(name), info},
		{layout.BackupItemOperations(name), list},
		{layout.BackupVolumeSnapshots(name), snapshots},
		{layout.BackupPodVolumeBackups(name), null},
		{layout.BackupLog(name), merged.Log},
	} {
		if _, err := publish.Create(ctx, j.Store, f.key, f.file); err != nil {
			return fmt.Errorf("publish %s: %w", f.key, err)
		}
		failpoint.Hit("backup-runner/file-published")
	}
	return nil
}

// publishFailure leaves a log and results that say why the backup failed. It is
// best effort: the metadata file, written next, says it too.
func (j *Job) publishFailure(ctx context.Context, verdict checkpoint.Failure) {
	err := ending.Explain(ctx, j.Store, j.Dir, j.Backup, j.Cluster,
		ending.Verdict{Reason: verdict.Reason, Time: verdict.Time, Source: "holdfast/backup-runner"})
	if err != nil {
		j.Log.WarnContext(ctx, "log of the failed backup not published", "error", err)
	}
}

func remove(files ...part.File) {
	for _, f := range files {
		_ = os.Remove(f.Path) // best effort: the job's directory is removed at its end
	}
}
