package job

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/spec/restoreorder"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

// memberCache bounds the unpacked pieces of the tarball kept for neighbouring reads, in bytes.
const memberCache = 8 << 20

// preparedPlan is what a restore does, and with what.
type preparedPlan struct {
	// Content has no Plan where the backup cannot be read, or is not needed any more.
	restore.Content
	tarball tarball.Source
	catalog *resource.Catalog
	// planned is what a successor plans with too.
	planned outcome.Planned
	order   restoreorder.Order
	leftOut map[string]int64 // what the filters leave out, by resource
	pausing bool             // some objects of the plan are of a kind that has a rule
}

// closeTarball releases the tarball.
func (p *preparedPlan) closeTarball(s *session) {
	if p == nil || p.tarball == nil {
		return
	}
	if err := p.tarball.Close(); err != nil {
		s.log.Warn("Failed to close tarball", "error", err)
	}
}

// restorePlanner makes the plan of a restore.
type restorePlanner struct {
	in      *restoreInputs
	actions *boundActions
}

// openError returns the error of a tarball that was not opened. One of the work directory, which may be
// full, ends the restore.
func openError(ctx context.Context, err error) error {
	const what = "open the tarball"
	var file *fs.PathError
	if ctx.Err() == nil && !errors.Is(err, claim.ErrLost) && errors.As(err, &file) {
		return fatalErrorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// preparePlan opens the backup and makes the plan. Messages about them are recorded by the first holder
// only. Without an error, a result without a plan is a backup that cannot be read. A result beside
// an error has to be closed too.
func (p *restorePlanner) preparePlan(ctx context.Context) (*preparedPlan, error) {
	head, backup := &p.in.records.head, p.in.backup.Name
	if head.Finished != nil && head.Planned == nil {
		return &preparedPlan{}, nil // nothing was planned then
	}
	out := &preparedPlan{}
	store := p.in.retryingStore(p.in.store.Store)
	store.Impatient = true // an object whose body cannot be read is an error of the object
	references, ruleErrs, err := p.referenceRules(ctx)
	if err != nil {
		return out, err
	}
	limits := tarball.Limits{CacheBytes: memberCache, References: references}
	if out.tarball, err = tarball.Open(ctx, store, backup, filepath.Join(p.in.dir, tarballDir), limits); err != nil {
		if !isDamaged(err) {
			return out, openError(ctx, err)
		}
		return out, p.unreadableError(err, fmt.Sprintf("the tarball of backup %q cannot be read", backup))
	}
	out.Source = out.tarball
	failpoint.Hit("restore-runner/tarball-opened")
	if out.order, out.Runs, err = restoreorder.Parse(p.in.restore.Annotations); err != nil {
		return out, fatalErrorf("%w", err)
	}
	if out.Pauses, err = p.pauseRules(ctx, out.order); err != nil {
		return out, err
	}
	if out.Injections, err = p.injectionRules(ctx); err != nil {
		return out, err
	}
	taken, err := p.volumesTaken(ctx)
	if err != nil {
		return out, err
	}
	if out.catalog, err = resource.Discover(ctx, p.in.cfg.REST); err != nil {
		return out, fmt.Errorf("discover what the cluster serves: %w", err)
	}
	if head.Planned == nil {
		p.reportProblems(out.tarball, ruleErrs)
	}
	if err := p.makePlan(ctx, out, taken); err != nil {
		return out, p.unreadableError(err, fmt.Sprintf("the listing of backup %q cannot be read", backup))
	}
	if err := p.followPlan(ctx, out.Plan); err != nil {
		return out, err
	}
	if head.Planned == nil {
		p.reportLeftOut(p.actions)
		p.reportUnclaimed(out)
		return out, p.checkAdmitted(ctx, out.Plan)
	}
	return out, nil
}

// damageError is a backup that cannot be read, which is recorded as an error of the restore.
type damageError struct{ message string }

// Error implements error.
func (e *damageError) Error() string { return e.message }

// unreadableError makes damage found by the first holder an error of the restore, and damage found later
// its end: what was restored cannot be distinguished from what was not.
func (p *restorePlanner) unreadableError(err error, what string) error {
	switch {
	case !isDamaged(err):
		return err
	case p.in.records.head.Planned != nil:
		return fatalErrorf("%s any more: %w", what, err)
	}
	return &damageError{fmt.Sprintf("%s: %v", what, err)}
}

// reportProblems reports the entries of the tarball that were passed over, and, where it has no manifest, rules
// about references that are none.
func (p *restorePlanner) reportProblems(source tarball.Source, ruleErrs []error) {
	for _, err := range ruleErrs {
		if source.Header().Foreign {
			p.in.recorder.Warn(outcome.General, err.Error())
		}
	}
	problems, n := source.Problems()
	for _, problem := range problems {
		p.in.recorder.Error(outcome.General, fmt.Sprintf("entry %q of the tarball: %v", problem.Path, problem.Err))
	}
	if n > len(problems) {
		p.in.recorder.Error(outcome.General, fmt.Sprintf("%d more entries of the tarball were passed over", n-len(problems)))
	}
}

// fillsClaims reports that claims are filled from their CSI snapshots: as the first holder planned it, since
// a successor without the feature would leave claims empty that it owes their data.
func (p *restorePlanner) fillsClaims() bool {
	if before := p.in.records.head.Planned; before != nil {
		return before.CSI
	}
	return p.in.cfg.CSI
}

// makePlan selects the items of the backup. Names that an earlier holder resolved mean what they meant
// then.
func (p *restorePlanner) makePlan(ctx context.Context, out *preparedPlan, taken volumes.Taken) error {
	spec, before := &p.in.restore.Spec, p.in.records.head.Planned
	survey, err := plan.ReadSurvey(ctx, out.tarball)
	if err != nil {
		return err
	}
	items, err := selection.ParseItems(p.in.restore.Annotations)
	if err != nil {
		return fatalErrorf("%w", err)
	}
	p.in.lowerMemoryLimit = service.RaiseMemoryLimit(int64(survey.Objects) * heapPerObject(&items))
	parts, err := p.findParts(ctx, out.tarball, items)
	if err != nil {
		return err
	}
	if survey.Empty() && before == nil {
		p.in.recorder.Warn(outcome.General, "the backup holds no items: zero items to be restored")
	}
	out.Snapshots = survey.Snapshots
	taken.Snapshotted, taken.CSI, taken.Items = survey.Snapshots.Claims(), p.fillsClaims(), out.tarball.Items
	out.Volumes, err = volumes.Decide(ctx, parts.Volumes(survey.Volumes), out.tarball.Read, taken, spec.RestorePVs == nil || *spec.RestorePVs)
	if err != nil {
		return err
	}
	names := newResolver(survey.Resolver(out.catalog), before)
	filter, err := selection.NewFilter(selection.Spec{
		IncludedResources: spec.IncludedResources, ExcludedResources: spec.ExcludedResources,
		IncludeClusterResources: spec.IncludeClusterResources,
		LabelSelector:           spec.LabelSelector, OrLabelSelectors: spec.OrLabelSelectors,
	}, selection.ExpandNamespaces(spec.IncludedNamespaces, spec.ExcludedNamespaces, survey.Namespaces), names)
	if err != nil {
		return fatalErrorf("spec: %w", err)
	}
	reserve, err := p.actions.bindActions(ctx, survey, survey.Resolver(out.catalog), before)
	if err != nil {
		return err
	}
	out.Plan, err = plan.Build(ctx, out.tarball, plan.Config{
		Filter: filter, Parts: parts, Mapping: spec.NamespaceMapping, Claim: out.Volumes.Claim,
		NoClusterResources: spec.IncludeClusterResources != nil && !*spec.IncludeClusterResources,
		Reserve:            reserve,
		Read:               func(item manifest.Item) ([]byte, error) { return out.tarball.Read(ctx, item) },
		Ports:              p.chosenPorts(),
		Order:              out.order,
		Paused: func(kind schema.GroupKind) bool {
			paused := out.Pauses.For(kind) != nil
			out.pausing = out.pausing || paused
			return paused
		},
	})
	if err == nil {
		out.leftOut = survey.LeftOut(out.Plan)
	}
	if before == nil && err == nil {
		err = p.reportUnmatched(survey, filter, out, parts.LeftOut())
	}
	out.planned = names.planned
	out.planned.Reserve, out.planned.Missing, out.planned.Pauses = reserve, p.actions.set.Errors, out.Pauses
	out.planned.CSI = taken.CSI
	return err
}

// chosenPorts tells which Services keep node ports, nil where all do.
func (p *restorePlanner) chosenPorts() func(body []byte) (kept, chosen bool) {
	preserve := p.in.restore.Spec.PreserveNodePorts
	if preserve != nil && *preserve || p.in.restore.Annotations[holdfast.AnnotationPreserveAddresses] == "true" {
		return nil
	}
	return apply.ServicePorts
}
