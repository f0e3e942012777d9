// Package itemaction shows the items of a backup that is about to be deleted to the delete item
// actions of plugins, so that they clean up what they made outside the cluster while the backup
// still names it.
//
// Each item is shown to the actions that want it one after the other, in alphanumeric order of
// their names. Each attempt at a deletion shows all items anew, so an action may see an item again,
// as in Velero; it never misses one.
package itemaction

import (
	"context"
	"fmt"
	"log/slog"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
)

// Session is one deletion's use of plugins.
type Session interface {
	// DeleteItems returns the actions. They work until Close.
	DeleteItems() []action.DeleteItem
	// Close ends the processes of the plugins.
	Close()
}

// Runner runs the actions for any number of deletions at once.
type Runner struct {
	// Open begins a session; the lines that plugins log go to log.
	Open func(ctx context.Context, log *slog.Logger) Session
	// Unknown are the errors of plugin binaries whose registrations could not be listed. While there
	// are any, no plugin is called and every backup with items is kept: one of them may have the
	// cleanup action. Nil means none.
	Unknown func() []error
	// Discover finds the resources that the names in selectors mean.
	Discover func(ctx context.Context) (selection.Resolver, error)
	Log      *slog.Logger
	Metrics  *Metrics     // nil counts nothing
	Plugins  *PluginLimit // of all deletions together
}

// Job is one attempt at the deletion of one backup.
type Job struct {
	// Backup is what the actions are given.
	Backup *velerov1.Backup
	// Store is the backup's location.
	Store objectstore.Store
	// Confirm returns an error when the deletion is not this process's any more. It is asked before
	// every call of an action.
	Confirm func(ctx context.Context) error
}

// Run shows every item of the tarball to the actions that want it. Where nothing is registered, nothing
// is read; a backup without a tarball is no error: one that failed before it had one, or whose tarball an
// earlier attempt removed. What actions did not do is a *FailedError, which wraps ErrBusy if the attempt ended
// at an action that as many other deletions use as may; with any other error none was called.
func (r *Runner) Run(ctx context.Context, job Job) error {
	log := r.Log.With("backup", job.Backup.Name)
	session := r.Open(ctx, log)
	defer session.Close()
	actions, _ := action.Merge(nil, session.DeleteItems()) // in the order in which they run
	var unknown []error
	if r.Unknown != nil {
		unknown = r.Unknown()
	}
	if len(actions) == 0 && len(unknown) == 0 {
		return nil
	}
	w := &attempt{job: job, log: log, metrics: r.Metrics, plugins: r.Plugins.OpenUse(), failed: &FailedError{}}
	defer w.plugins.Close()
	found, err := objectstore.Exists(ctx, job.Store, layout.BackupTarball(job.Backup.Name))
	if err != nil || !found {
		return err
	}
	if len(unknown) > 0 {
		return FailedWith(unknown)
	}
	if err := r.beginAttempt(ctx, w, actions); err != nil {
		return err
	}
	return w.endAttempt(w.showAllItems(ctx))
}

// beginAttempt calls AppliesTo of the actions.
func (r *Runner) beginAttempt(ctx context.Context, w *attempt, actions []action.DeleteItem) error {
	cluster, err := r.Discover(ctx)
	if err != nil {
		return err
	}
	if err := w.openManifest(ctx); err != nil {
		return err
	}
	// An action whose AppliesTo fails may apply to every item, and before those whose names come
	// later.
	bound, errs := action.Bind(ctx, actions, w.newResolver(cluster))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(errs) > 0 {
		return FailedWith(errs)
	}
	for _, b := range bound {
		w.bound = append(w.bound, &attemptAction{Bound: b})
	}
	backup := w.job.Backup.DeepCopy()
	backup.SetGroupVersionKind(velerov1.GroupVersion.WithKind("Backup"))
	w.backup, err = action.NewBackup(backup)
	return err
}

// endAttempt returns what was not done. cause is why the attempt ended early, if it did.
func (w *attempt) endAttempt(cause error) error {
	for _, a := range w.bound {
		if a.left > 0 {
			w.failed.addError(fmt.Errorf("plugin %s: does not answer: %d more items were not shown to it", a.Action.Name(), a.left))
		}
	}
	if cause != nil {
		w.failed.Errs = append(w.failed.Errs, cause)
	}
	if len(w.failed.Errs) == 0 {
		return nil
	}
	return w.failed
}
