package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/hook"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/cut"
)

// errNotAdmitted ends a backup that is past its collection without a composition to follow: what it
// was admitted for is no longer known.
var errNotAdmitted = errors.New("the backup is finalizing and nothing was collected for it")

// backupCollection is the part of an attempt that lists and stores the objects of the backup.
type backupCollection struct {
	*attempt
	// namespaces are those the backup was admitted for.
	namespaces []string
	store      objectstore.Store
	dir        string // for work files
}

// collectBackup lists and stores everything and fixes the composition.
func (c *backupCollection) collectBackup(ctx context.Context) (checkpoint.Composition, error) {
	var none checkpoint.Composition
	if c.held.Object.Status.Phase != velerov1.BackupPhaseInProgress {
		return none, errNotAdmitted
	}
	catalog, filter, err := c.discoverResources(ctx)
	if err != nil {
		return none, err
	}
	failpoint.Hit("backup-runner/discovered")
	lasting, release := c.gracefulContext(ctx)
	defer release()
	work := c.collectJob(catalog, filter)
	if work.Hooks, err = hook.NewBackup(&work.Backup.Spec.Hooks, catalog); err != nil {
		return none, err
	}
	work.Exec, work.Opened, work.RanEarly = c.Exec, &c.opened, mark.PostHooksOf(c.held.Object).Early
	work.Actions = c.openActions(lasting, catalog, filter) // for as long as they are called
	defer work.Actions.Close()
	work.LockVolume = c.volumeLocks().lockVolume
	if c.Snapshots != nil {
		work.Snapshots = c.Snapshots(lasting, c.held.Object.DeepCopy(), work.Actions.Lines.Add)
		defer work.Snapshots.Close()
	}
	stop := (&progressReporter{held: c.held, clock: c.Clock}).startReporting(ctx, work.Progress)
	defer stop() // also when collecting panics
	result, err := collect.Run(lasting, c.collectConfig(), work)
	stop()
	if err != nil {
		return none, awaitStop(ctx, err)
	}
	c.held.Log.InfoContext(ctx, "Collected objects", "items", result.Items, "parts", len(result.Checkpoints), "errors", result.Errors)
	return c.fixComposition(ctx, work.Cut, result)
}

// volumeLocks are those of the volumes of the backup.
func (c *backupCollection) volumeLocks() *volumeLocks {
	return &volumeLocks{ledger: c.Ledger, uid: c.held.Object.UID, stop: c.held.Stopping().Done(), clock: c.Clock, log: c.held.Log}
}

func (c *backupCollection) collectConfig() collect.Config {
	return collect.Config{Lister: c.Cluster, Clock: c.Clock, Log: c.held.Log,
		Workers: c.Workers, PartBytes: c.PartBytes, PartItems: c.PartItems, BlockWorkers: c.BlockWorkers}
}

// storeItemsAgain stores the current state of the items that operations named, and returns the keys of their records.
func (c *backupCollection) storeItemsAgain(ctx context.Context, namespaces []string, items []operation.Resource) ([]string, error) {
	c.namespaces = namespaces
	catalog, filter, err := c.discoverResources(ctx)
	if err != nil {
		return nil, err
	}
	lasting, release := c.gracefulContext(ctx)
	defer release()
	work := c.collectJob(catalog, filter)
	work.Actions = c.openActions(lasting, catalog, filter)
	defer work.Actions.Close()
	result, err := collect.StoreAgain(lasting, c.collectConfig(), work, items)
	if err != nil {
		return nil, awaitStop(ctx, err)
	}
	c.held.Log.InfoContext(ctx, "Stored items of operations again", "items", result.Items, "errors", result.Errors)
	return result.Checkpoints, nil
}

// collectJob is what is to be collected.
func (c *backupCollection) collectJob(catalog *resource.Catalog, filter *selection.Filter) collect.Job {
	backup := c.held.Object.DeepCopy()
	at := cut.New(c.Cluster, c.ConsistentCut)
	at.Begin(backup.ResourceVersion) // of the write that claimed it
	return collect.Job{
		Backup: backup, Epoch: c.held.Claim.Epoch, Instance: c.held.Claim.Owner, Filter: filter, Catalog: catalog,
		Discover: c.discoverResources,
		Cut:      at, Store: c.store, Dir: c.dir,
		LiveNamespaces: func(ctx context.Context) (int, error) { return c.liveNamespaces(ctx, filter, c.held.Log) },
		Progress:       &collect.Progress{}, Stop: c.held.Stopping().Done(), Confirm: c.held.Confirm, Progressed: c.held.NoteProgress,
	}
}

// gracefulContext returns ctx without its end: it ends with the claim, once the grace period is over after
// the process was stopped, or with a request to cancel the backup.
func (c *backupCollection) gracefulContext(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, release := engine.Join(context.WithoutCancel(ctx), c.owned)
	working, stop := engine.Join(lasting, c.held.Cancelling())
	return working, func() {
		stop()
		release()
	}
}

// awaitStop returns the error of a collection. One that the stop of the process ended is returned once ctx has ended too, which
// happens in another goroutine: without that the stop would be judged as a failure of the backup.
func awaitStop(ctx context.Context, err error) error {
	if errors.Is(err, collect.ErrStopped) {
		<-ctx.Done()
	}
	return err
}

// openActions opens the backup's actions. Their Close may be called more than once.
func (c *backupCollection) openActions(ctx context.Context, catalog *resource.Catalog, filter *selection.Filter) collect.Actions {
	lines := &collect.Lines{}
	if c.Actions == nil {
		return collect.Actions{Lines: lines, Close: func() {}}
	}
	a := c.Actions.Open(ctx, c.held.Object.DeepCopy(), catalog, filter, lines.Add, c.volumeLocks().lockVolume)
	a.Lines, a.Close = lines, sync.OnceFunc(a.Close)
	return a
}

// discoverResources reads the resources that the cluster serves and builds the filter with their names.
func (c *backupCollection) discoverResources(ctx context.Context) (*resource.Catalog, *selection.Filter, error) {
	return c.discoverFor(ctx, &c.held.Object.Spec, c.namespaces, c.held.Log)
}

// discoverFor is discoverResources for a spec and the namespaces that it selects.
func (k *Kind) discoverFor(ctx context.Context, spec *velerov1.BackupSpec, namespaces []string, log *slog.Logger) (catalog *resource.Catalog, filter *selection.Filter, err error) {
	err = k.callLoop(log).Do(ctx, "discover resources", func() error {
		catalog, err = k.Cluster.Discover(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	filter, err = selection.NewFilter(selection.FromBackup(spec), namespaces, catalog)
	return catalog, filter, err
}

// fixComposition makes what was collected the composition of the backup, unless there is one.
func (c *backupCollection) fixComposition(ctx context.Context, at *cut.Cut, result collect.Result) (checkpoint.Composition, error) {
	b := c.held.Object
	phase := velerov1.BackupPhaseCompleted
	if result.Errors > 0 {
		phase = velerov1.BackupPhasePartiallyFailed
	}
	failpoint.Hit("backup-runner/before-composition")
	if err := c.held.Confirm(ctx); err != nil {
		return checkpoint.Composition{}, err
	}
	composition := checkpoint.Composition{
		Backup: b.Name, UID: string(b.UID), Epoch: c.held.Claim.Epoch, Checkpoints: result.Checkpoints,
		Phase: phase, Items: result.Items, Warnings: result.Warnings, Errors: result.Errors, Revisions: at.Revisions(),
		Operations: result.Operations,
	}
	if len(result.Operations) > 0 {
		composition.Namespaces = c.namespaces
	}
	fixed, err := checkpoint.RecordComposition(ctx, c.store, composition)
	if err == nil {
		c.held.NoteProgress()
	}
	return fixed, err
}

// liveNamespaces counts namespaces, where the number matters.
func (k *Kind) liveNamespaces(ctx context.Context, f *selection.Filter, log *slog.Logger) (int, error) {
	if f.AllNamespaces() || f.AllButSome() || len(f.Namespaces()) <= 1 {
		return 0, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("NamespaceList"))
	list.APIVersion = "v1"
	err := k.callLoop(log).Do(ctx, "count namespaces", func() error { return k.Reader.List(ctx, list, client.Limit(1)) })
	if err != nil {
		return 0, fmt.Errorf("count namespaces: %w", err)
	}
	n := len(list.Items)
	if list.RemainingItemCount != nil {
		n += int(*list.RemainingItemCount)
	}
	return n, nil
}
