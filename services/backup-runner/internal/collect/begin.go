package collect

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/actionset"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/plan"
)

// beginBackup decides what holds for the whole backup, or follows what its first holder decided, and
// returns the actions; nil while none may ask for an object.
func (r *collectRun) beginBackup(ctx context.Context) (*actionset.Bound, error) {
	if r.past.Start == nil {
		return r.recordStart(ctx)
	}
	if err := r.awaitMissingGroups(ctx); err != nil {
		return nil, err
	}
	bound, _, err := r.bindActions(ctx, r.past.Start.Unbound)
	return bound, err
}

// recordStart records what is decided for the whole backup: its revision, its units, and how the log
// begins, with the API groups that do not answer. It is durable before anything is collected, so
// that no later holder decides anew.
func (r *collectRun) recordStart(ctx context.Context) (*actionset.Bound, error) {
	bound, unbound, err := r.bindActions(ctx, nil) // first: plugins may be slow to answer, and a cut grows old
	if err != nil {
		return nil, err
	}
	live, err := r.job.LiveNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	revision, err := r.job.Cut.Current(ctx)
	if err != nil {
		return nil, err
	}
	failpoint.Hit("backup-runner/cut-taken")
	if err := r.noteLogStart(revision); err != nil {
		return nil, err
	}
	start := &checkpoint.Start{LiveNamespaces: live, Unbound: unbound}
	if bound != nil {
		start.Actions = bound.Names()
	}
	for _, kind := range plan.First(r.job.Filter, r.job.Catalog, live) {
		start.Kinds = append(start.Kinds, kind.Name())
	}
	out := r.workers.writers[0]
	out.Record.Start, r.past.Start = start, start
	return bound, out.Flush()
}

// noteLogStart notes how the log begins.
func (r *collectRun) noteLogStart(revision string) error {
	out := r.workers.writers[0]
	message := "Backup started, each kind is listed at its newest revision"
	if revision != "" {
		message = "Backup started, everything is listed at revision " + revision
	}
	if err := out.Inform(joblog.Entry{Message: message}); err != nil {
		return err
	}
	if r.job.Filter.IsOfNamespaces() {
		err := out.Inform(joblog.Entry{Message: plan.MessageOfNamespaces})
		if err != nil {
			return err
		}
	}
	warnings := append(slices.Concat(r.job.Actions.Warnings, r.ruleWarnings), r.job.Filter.Unmatched(r.job.Catalog.SilentVersions(), "the cluster serves no such resource")...)
	for _, warning := range warnings {
		if err := out.Warn(joblog.Entry{Message: warning}); err != nil {
			return err
		}
	}
	for _, f := range r.job.Catalog.Failures() {
		if err := r.noteUnanswered(&f); err != nil {
			return err
		}
	}
	return nil
}

// noteUnanswered notes that a group version could not be discovered: an error if the filters may select
// objects of it.
func (r *collectRun) noteUnanswered(f *resource.GroupFailure) error {
	if r.job.Filter.MayTakeFrom(f.GroupVersion) {
		return r.workers.writers[0].Fail(joblog.Entry{
			Message: fmt.Sprintf("API group %s does not answer: its objects are not backed up", f.GroupVersion), Err: f.Err.Error()})
	}
	return r.workers.writers[0].Inform(joblog.Entry{
		Message: fmt.Sprintf("API group %s does not answer; the filters select nothing of it", f.GroupVersion), Err: f.Err.Error()})
}

// bindActions calls AppliesTo of the actions. One that fails is an error of the backup,
// noted unless an earlier holder did; all of these are returned.
func (r *collectRun) bindActions(ctx context.Context, noted []string) (bound *actionset.Bound, unbound []string, err error) {
	out, actions := r.workers.writers[0], &r.job.Actions
	for _, missing := range actions.Errors {
		unbound = append(unbound, missing)
		if slices.Contains(noted, missing) {
			continue
		}
		if err := out.Fail(joblog.Entry{Message: missing}); err != nil {
			return nil, nil, err
		}
	}
	if actions.None() && r.hooks == nil && len(r.past.Acted.Spools) == 0 {
		return nil, unbound, out.Drain()
	}
	bound, failures, err := actions.Bind(ctx, r.job.Backup, r.job.Catalog, r.workers.stop)
	if err != nil {
		return nil, nil, err
	}
	if r.hooks != nil {
		bound.Hooked = r.hooks.MayHaveHooks
	}
	for _, f := range failures {
		unbound = append(unbound, f.Action)
		if slices.Contains(noted, f.Action) {
			continue
		}
		if err := out.Fail(joblog.Entry{Message: "an action was not run: what it applies to is unknown", Err: f.Err.Error()}); err != nil {
			return nil, nil, err
		}
	}
	return bound, unbound, out.Drain()
}

// noteListed notes that everything was listed, once everything is durable.
func (r *collectRun) noteListed() error {
	out := r.workers.writers[0]
	if err := out.Drain(); err != nil {
		return err
	}
	if r.past.Ended {
		return out.Flush()
	}
	err := out.Inform(joblog.Entry{Message: fmt.Sprintf("Collected %d objects", r.job.Progress.Read().Items)})
	if err != nil {
		return err
	}
	out.Record.Ended = true
	return out.Flush()
}
