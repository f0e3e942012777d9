package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/pkg/tarball"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/volume"
)

// tarballDir is where, in its work directory, a restore keeps what it needs of the tarball.
const tarballDir = "tarball"

// memberCache bounds the unpacked pieces of the tarball kept for neighbouring reads, in bytes.
const memberCache = 8 << 20

// storeAttempts is how often the store is asked before it counts as unreachable.
const storeAttempts = 5

// job is one taken restore.
type job struct {
	*Runner
	restore  *velerov1.Restore
	mine     claim.Claim
	log      *slog.Logger
	recorder *outcome.Recorder
	schedule string
}

// restoreFrom plans and restores. Damage of the backup is an error of the restore, not the end of it (Velero 1.18).
func (j *job) restoreFrom(ctx context.Context, store objectstore.Store, backup, dir string) error {
	opened, err := again(ctx, j, "open the tarball", func() (tarball.Source, error) {
		return tarball.Open(ctx, store, backup, filepath.Join(dir, tarballDir), tarball.Limits{CacheBytes: memberCache})
	})
	switch {
	case damaged(err):
		j.recorder.Error(outcome.General, fmt.Sprintf("the tarball of backup %q cannot be read: %v", backup, err))
		return nil
	case err != nil:
		return err
	}
	source := &patient{Source: opened, job: j}
	defer func() {
		if err := source.Close(); err != nil {
			j.log.Warn("tarball not closed", "error", err)
		}
	}()
	j.problems(source)
	infos, err := again(ctx, j, "read the volume information", func() ([]volume.Info, error) { return volumeInfos(ctx, store, backup) })
	if err != nil {
		return err
	}
	catalog, err := resource.Discover(ctx, j.cfg.REST)
	if err != nil {
		return fmt.Errorf("discover what the cluster serves: %w", err)
	}
	p, volumes, err := j.plan(ctx, source, catalog, infos)
	if damaged(err) {
		j.recorder.Error(outcome.General, fmt.Sprintf("the listing of backup %q cannot be read: %v", backup, err))
		return nil
	}
	if err != nil {
		return err
	}
	j.recorder.SetPlan(p)
	return restore.Run(ctx, restore.Config{
		Backup: backup, Restore: j.restore.Name, Spec: &j.restore.Spec, Plan: p, Source: source, Volumes: volumes,
		Catalog: catalog, Recorder: j.recorder, REST: j.cfg.REST, Clock: j.cfg.Clock, Resumed: j.mine.Epoch > 1,
		TerminatingTimeout: j.cfg.TerminatingTimeout, ResourceTimeout: j.cfg.ResourceTimeout,
	})
}

// problems reports the entries of the tarball that were passed over.
func (j *job) problems(source tarball.Source) {
	problems, n := source.Problems()
	for _, p := range problems {
		j.recorder.Error(outcome.General, fmt.Sprintf("entry %q of the tarball: %v", p.Path, p.Err))
	}
	if n > len(problems) {
		j.recorder.Error(outcome.General, fmt.Sprintf("%d more entries of the tarball were passed over", n-len(problems)))
	}
}

// plan selects the items of the backup.
func (j *job) plan(ctx context.Context, source tarball.Source, catalog *resource.Catalog, infos []volume.Info) (*plan.Plan, *volume.Decisions, error) {
	spec := &j.restore.Spec
	survey, err := plan.Look(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	if survey.Empty() {
		j.recorder.Warn(outcome.General, "the backup holds no items: zero items to be restored")
	}
	volumes, err := volume.Decide(ctx, survey.Volumes, source.Read, infos, spec.RestorePVs == nil || *spec.RestorePVs)
	if err != nil {
		return nil, nil, err
	}
	filter, err := selection.NewFilter(selection.Spec{
		IncludedResources: spec.IncludedResources, ExcludedResources: spec.ExcludedResources,
		IncludeClusterResources: spec.IncludeClusterResources,
		LabelSelector:           spec.LabelSelector, OrLabelSelectors: spec.OrLabelSelectors,
	}, selection.ExpandNamespaces(spec.IncludedNamespaces, spec.ExcludedNamespaces, survey.Namespaces), survey.Resolver(catalog))
	if err != nil {
		return nil, nil, fatal("spec: %w", err)
	}
	p, err := plan.Build(ctx, source, plan.Config{
		Filter: filter, Mapping: spec.NamespaceMapping, Claim: volumes.Claim,
		NoClusterResources: spec.IncludeClusterResources != nil && !*spec.IncludeClusterResources,
	})
	return p, volumes, err
}

// damaged tells that a backup cannot be read, however often it is tried.
func damaged(err error) bool {
	for _, target := range []error{tarball.ErrCorrupt, tarball.ErrTooLarge, tarball.ErrPath, tarball.ErrMismatch, manifest.ErrCorrupt} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// again asks the store a few times: it may be away for a moment. What will not change is not asked twice.
func again[T any](ctx context.Context, j *job, what string, do func() (T, error)) (T, error) {
	pause := time.Second
	for attempt := 1; ; attempt++ {
		out, err := do()
		var end *fatalError
		final := errors.Is(err, objectstore.ErrNotFound) || errors.Is(err, objectstore.ErrNoBucket) || errors.As(err, &end)
		switch {
		case err == nil, damaged(err), ctx.Err() != nil:
			return out, err
		case final || attempt == storeAttempts:
			return out, fatal("%s: %w", what, err)
		}
		j.log.Warn("object store did not answer", "doing", what, "error", err)
		timer := j.cfg.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
		pause *= 2
	}
}
