package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/dryrun"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// DryRun is a backup to plan, validated and completed, and the namespaces that it selects.
type DryRun struct {
	Backup     *velerov1.Backup
	Namespaces []string
	// Messages are remarks for the plan.
	Messages []string
	// Progress gets the number of objects so far, one call at a time; nil gets none.
	Progress func(objects int64)
	// Row gets the rows in their order; nil gets none.
	Row func(*storedplan.Row) error
}

// Planned is what a dry run found.
type Planned struct {
	*dryrun.Result
	Header storedplan.Header
	// Unstored is why the plan is not stored; nil where it is.
	Unstored error
	// SizesFrom is the backup whose objects have these Sizes by kind, in bytes; empty where there is none.
	SizesFrom string
	Sizes     map[string]int64
}

// plansAtOnce is how many dry runs a process makes at once; others wait.
const plansAtOnce = 2

// PlanBackup makes the dry run of a backup and stores the plan in the backup's location. It changes nothing else.
func (k *Kind) PlanBackup(ctx context.Context, run *DryRun) (*Planned, error) {
	if err := k.planning.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer k.planning.Release(1)
	return k.runDryRun(ctx, run)
}

// runDryRun is PlanBackup within the bound of dry runs.
func (k *Kind) runDryRun(ctx context.Context, run *DryRun) (_ *Planned, err error) {
	dir, err := os.MkdirTemp(k.WorkDir, "plan-*")
	if err != nil {
		return nil, fmt.Errorf("prepare the work dir: %w", err)
	}
	rows := storedplan.NewWriter(dir)
	defer func() { err = errors.Join(err, rows.Close(), os.RemoveAll(dir)) }()
	log := k.Log.With("plan", run.Backup.Name)
	found := &Planned{}
	if found.Result, err = k.listForPlan(ctx, run, rows, log); err != nil {
		return nil, err
	}
	if err := rows.Sort(); err != nil {
		return nil, err
	}
	found.Messages = append(run.Messages, found.Messages...)
	if found.Unstored, err = k.storePlan(ctx, run.Backup, rows, found); err != nil {
		return nil, err
	}
	if run.Row != nil {
		for row, err := range rows.Rows() {
			if err == nil {
				err = run.Row(row)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// listForPlan finds out what the backup would hold.
func (k *Kind) listForPlan(ctx context.Context, run *DryRun, rows *storedplan.Writer, log *slog.Logger) (*dryrun.Result, error) {
	b := run.Backup
	cfg, end, err := k.dryRunConfig(ctx, b, run.Namespaces, log)
	if err != nil {
		return nil, err
	}
	defer end()
	cfg.Rows, cfg.Progress = rows, run.Progress
	if k.Exec != nil {
		if cfg.Hooks, err = hook.NewBackup(&b.Spec.Hooks, cfg.Catalog); err != nil {
			return nil, err
		}
	}
	if k.Snapshots != nil {
		cfg.Snapshots = k.Snapshots(ctx, b.DeepCopy(), new(collect.Lines).Add)
		defer cfg.Snapshots.Close()
	}
	return dryrun.Run(ctx, *cfg)
}

// dryRunConfig is a dry run that finds the objects of a backup; end closes the actions.
func (k *Kind) dryRunConfig(ctx context.Context, b *velerov1.Backup, namespaces []string, log *slog.Logger) (_ *dryrun.Config, end func(), err error) {
	catalog, filter, err := k.discoverFor(ctx, &b.Spec, namespaces, log)
	if err != nil {
		return nil, nil, err
	}
	cfg := &dryrun.Config{Backup: b, Filter: filter, Catalog: catalog, Lister: k.Cluster, Cut: cut.New(k.Cluster, k.ConsistentCut), Workers: k.Workers,
		LiveNamespaces: func(ctx context.Context) (int, error) { return k.liveNamespaces(ctx, filter, log) }}
	if k.Actions == nil {
		return cfg, func() {}, nil
	}
	cfg.Actions = k.Actions.Open(ctx, b.DeepCopy(), catalog, filter, new(collect.Lines).Add, nil)
	return cfg, cfg.Actions.Close, nil
}

// storePlan stores the plan, with the sizes of the newest backup like it. That the bucket does not take it is no failure of the dry run.
func (k *Kind) storePlan(ctx context.Context, b *velerov1.Backup, rows *storedplan.Writer, found *Planned) (unstored, err error) {
	store, unstored := k.openForPlan(ctx, b.Spec.StorageLocation)
	if unstored == nil {
		defer func() { _ = store.Close() }() // everything is written
		if err := k.readSizes(ctx, store, b, found); err != nil {
			found.Messages = append(found.Messages, fmt.Sprintf("sizes are not known: %v", err))
		}
	}
	if found.Header, err = k.newHeader(b, found); err != nil || unstored != nil {
		found.Header.Counts = rows.Counts()
		return unstored, err
	}
	return rows.Store(ctx, store, &found.Header), nil
}

func (k *Kind) openForPlan(ctx context.Context, name string) (objectstore.Store, error) {
	bsl, err := k.Locations.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return k.Locations.Open(ctx, bsl)
}

// newHeader is the header of a plan that is not stored yet.
func (k *Kind) newHeader(b *velerov1.Backup, found *Planned) (storedplan.Header, error) {
	spec, err := json.Marshal(&b.Spec)
	if err != nil {
		return storedplan.Header{}, fmt.Errorf("encode the spec: %w", err)
	}
	now := k.Clock.Now().UTC()
	h := storedplan.Header{ID: storedplan.NewID(now), Kind: storedplan.KindBackup, Backup: b.Name, Created: now, Expires: now.Add(k.PlanLifetime),
		Spec: spec, Annotations: maps.Clone(b.Annotations), LeftOut: map[string]int64{}, Messages: found.Messages}
	maps.DeleteFunc(h.Annotations, func(key, _ string) bool { return !strings.HasPrefix(key, velerov1.AnnotationCSISnapshotClassPrefix) })
	for kind, count := range found.Kinds {
		if count.LeftOut > 0 {
			h.LeftOut[kind] = count.LeftOut
		}
	}
	return h, nil
}

// readSizes sums the sizes of the objects in the newest backup like this one, if there is one.
func (k *Kind) readSizes(ctx context.Context, store objectstore.Store, b *velerov1.Backup, found *Planned) error {
	list := &velerov1.BackupList{}
	if err := k.Reader.List(ctx, list, client.InNamespace(b.Namespace)); err != nil {
		return err
	}
	var newest *velerov1.Backup
	for i := range list.Items {
		other := &list.Items[i]
		if isComparable(other, b) && (newest == nil || newest.Status.CompletionTimestamp.Before(other.Status.CompletionTimestamp)) {
			newest = other
		}
	}
	if newest == nil {
		return nil
	}
	m, err := tarball.OpenManifest(ctx, store, newest.Name)
	if err != nil {
		return fmt.Errorf("backup %s: %w", newest.Name, err)
	}
	sizes := map[string]int64{}
	for item, err := range m.Items(ctx, manifest.Filter{}) {
		if err != nil {
			return fmt.Errorf("backup %s: %w", newest.Name, err)
		}
		sizes[manifest.KindName(item.Group, item.Version, item.Kind)] += item.Size
	}
	found.SizesFrom, found.Sizes = newest.Name, sizes
	return nil
}

// isComparable reports that a backup has ended in the location of another, and is of its schedule or, without one, has its filters.
func isComparable(other, b *velerov1.Backup) bool {
	phase := other.Status.Phase
	if phase != velerov1.BackupPhaseCompleted && phase != velerov1.BackupPhasePartiallyFailed || other.Status.CompletionTimestamp == nil ||
		other.Spec.StorageLocation != b.Spec.StorageLocation {
		return false
	}
	if schedule := b.Labels[velerov1.LabelScheduleName]; schedule != "" {
		return other.Labels[velerov1.LabelScheduleName] == schedule
	}
	return reflect.DeepEqual(selection.FromBackup(&other.Spec), selection.FromBackup(&b.Spec))
}
