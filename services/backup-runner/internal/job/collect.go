package job

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/resource"
	"github.com/holdfast-io/holdfast/pkg/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/finish"
)

// errNotAdmitted ends a backup that is past its collection without a composition
// to follow: what it was admitted for is no longer known.
var errNotAdmitted = errors.New("the backup is finalizing and nothing was collected for it")

// collect lists and stores everything and fixes the composition.
func (j *execution) collect(ctx context.Context, out *finish.Job) (checkpoint.Composition, error) {
	var none checkpoint.Composition
	if j.backup.Status.Phase != velerov1.BackupPhaseInProgress {
		return none, errNotAdmitted
	}
	ctx, span := j.Tracer.Start(ctx, "collect")
	defer span.End()
	catalog, filter, err := j.discover(ctx)
	if err != nil {
		return none, err
	}
	failpoint.Hit("backup-runner/discovered")
	work := collect.Job{
		Backup: j.backup.DeepCopy(), Epoch: j.mine.Epoch, Filter: filter, Catalog: catalog,
		Discover: j.discover,
		Cut:      cut.New(j.Cluster, j.ConsistentCut), Store: out.Store, Dir: out.Dir,
		LiveNamespaces: func(ctx context.Context) (int, error) { return j.liveNamespaces(ctx, filter) },
		Progress:       &collect.Progress{}, Stop: j.stop, Confirm: j.confirm,
	}
	lingering, done := j.lingers(ctx)
	defer done()
	work.Actions = j.actions(lingering, catalog) // not for less long than they are called
	defer work.Actions.Close()
	if j.Snapshots != nil {
		work.Snapshots = j.Snapshots(lingering, j.backup.DeepCopy(), work.Actions.Lines.Add)
		defer work.Snapshots.Close()
		work.LockVolume = j.lockVolume
	}
	stop := j.report(ctx, work.Progress)
	defer stop() // also when collecting panics
	result, err := collect.Run(lingering, collect.Config{Lister: j.Cluster, Clock: j.Clock, Log: j.log,
		Workers: j.Workers, PartBytes: j.PartBytes, PartItems: j.PartItems, BlockWorkers: j.BlockWorkers}, work)
	stop()
	if err != nil {
		return none, err
	}
	j.log.InfoContext(ctx, "objects collected", "items", result.Items, "parts", len(result.Checkpoints), "errors", result.Errors)
	return j.fix(ctx, out, work.Cut, result)
}

// actions opens the backup's actions. Their Close may be called more than once.
func (j *execution) actions(ctx context.Context, catalog *resource.Catalog) collect.Actions {
	lines := &collect.Lines{}
	if j.Actions == nil {
		return collect.Actions{Lines: lines, Close: func() {}}
	}
	a := j.Actions.Open(ctx, j.backup.DeepCopy(), catalog, lines.Add)
	a.Lines, a.Close = lines, sync.OnceFunc(a.Close)
	return a
}

// discover asks the cluster what it serves and builds the filter with its names.
func (j *execution) discover(ctx context.Context) (catalog *resource.Catalog, filter *selection.Filter, err error) {
	err = j.retry(ctx, "discover resources", func() error {
		catalog, err = j.Cluster.Discover(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	filter, err = selection.NewFilter(selection.FromBackup(&j.backup.Spec), j.admitted.Namespaces, catalog)
	return catalog, filter, err
}

func (j *execution) fix(ctx context.Context, out *finish.Job, c *cut.Cut, result collect.Result) (checkpoint.Composition, error) {
	phase := velerov1.BackupPhaseCompleted
	if result.Errors > 0 {
		phase = velerov1.BackupPhasePartiallyFailed
	}
	failpoint.Hit("backup-runner/before-composition")
	if err := j.confirm(ctx); err != nil {
		return checkpoint.Composition{}, err
	}
	return checkpoint.Fix(ctx, out.Store, checkpoint.Composition{
		Backup: j.backup.Name, UID: string(j.backup.UID), Epoch: j.mine.Epoch, Checkpoints: result.Checkpoints,
		Phase: phase, Items: result.Items, Warnings: result.Warnings, Errors: result.Errors, Revisions: c.Revisions(),
	})
}

// liveNamespaces counts namespaces, where the number matters.
func (j *execution) liveNamespaces(ctx context.Context, f *selection.Filter) (int, error) {
	if f.AllNamespaces() || f.AllButSome() {
		return 0, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("NamespaceList"))
	list.APIVersion = "v1"
	err := j.retry(ctx, "count namespaces", func() error { return j.Reader.List(ctx, list, client.Limit(1)) })
	if err != nil {
		return 0, fmt.Errorf("count namespaces: %w", err)
	}
	n := len(list.Items)
	if list.RemainingItemCount != nil {
		n += int(*list.RemainingItemCount)
	}
	return n, nil
}
