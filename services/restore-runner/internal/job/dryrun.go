package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/storedplan"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// dryRunsAtOnce bounds the dry runs of a process: each holds a plan in memory, as a restore does.
const dryRunsAtOnce = 2

// PlanRequest asks for the dry run of a restore.
type PlanRequest struct {
	// Restore has spec and annotations; it need not exist.
	Restore *velerov1.Restore
	// ServerDryRun sends creations with dryRun=All.
	ServerDryRun bool
	// Progress is called now and then.
	Progress func(outcome.Counts)
}

// PlannedRestore is what a dry run found: its rows, and the header. It has to be closed.
type PlannedRestore struct {
	*storedplan.Writer
	Header storedplan.Header
	// Unstored is why the plan is not in the bucket; nil where it is.
	Unstored error
}

// PlanRestore finds out what a restore would do, and stores that in the location of the backup. It
// changes nothing else. Errors about the request are field errors.
func (k *Kind) PlanRestore(ctx context.Context, req *PlanRequest) (*PlannedRestore, error) {
	if err := k.planning.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer k.planning.Release(1)
	planned, err := k.runDryRun(ctx, req)
	return planned, codedError(err)
}

// runDryRun is PlanRestore within the bound of dry runs.
func (k *Kind) runDryRun(ctx context.Context, req *PlanRequest) (_ *PlannedRestore, err error) {
	o := req.Restore.DeepCopy()
	o.UID, o.Namespace = uuid.NewUUID(), k.cfg.Namespace
	spec := o.Spec.DeepCopy()
	problems, err := k.cfg.Validator.Restore(ctx, o)
	if err := errors.Join(err, problems.Err()); err != nil {
		return nil, err
	}
	if _, files := o.Annotations[holdfast.AnnotationFiles]; files {
		return nil, errgrpc.Field("metadata.annotations["+holdfast.AnnotationFiles+"]", "a restore of files has no dry run")
	}
	spec.BackupName, spec.ScheduleName = o.Spec.BackupName, ""
	for _, key := range []string{holdfast.AnnotationPlan, holdfast.AnnotationPlanStrict, holdfast.AnnotationDryRun, corev1.LastAppliedConfigAnnotation} {
		delete(o.Annotations, key)
	}
	a, err := k.openDryRun(ctx, k.newDryRunSession(ctx, o))
	defer a.inputs.close()
	if err != nil {
		return nil, err
	}
	defer a.closeObjects()
	planned := &PlannedRestore{}
	planned.Header.ServerDryRun = req.ServerDryRun
	if planned.Writer, planned.Header.Messages, err = a.runDry(ctx, req.ServerDryRun, req.Progress); err != nil {
		return nil, err
	}
	if err := planned.storePlan(ctx, a, spec); err != nil {
		return nil, errors.Join(err, planned.Close())
	}
	return planned, nil
}

// newDryRunSession returns the session of a dry run, which begins no object once stopped ends.
func (k *Kind) newDryRunSession(stopped context.Context, o *velerov1.Restore) *session {
	return &session{cfg: &k.cfg, restore: o, log: k.cfg.Log.With("dryRunOf", o.Spec.BackupName), stopped: stopped}
}

// openDryRun opens the backup and makes the plan of a restore that has no claim and no records.
func (k *Kind) openDryRun(ctx context.Context, s *session) (*restoreAttempt, error) {
	a := &restoreAttempt{kind: k, cfg: &k.cfg, session: s, inputs: newInputs(s, "plan-"+string(s.restore.UID)), lasting: ctx}
	if err := a.inputs.findLocation(ctx); err != nil {
		return a, err
	}
	if err := a.inputs.openBucket(ctx); err != nil {
		return a, err
	}
	a.inputs.records = &outcomeRecords{session: s, bucket: a.inputs.store}
	if err := openActions(ctx, a); err != nil {
		return a, err
	}
	planner := &restorePlanner{in: a.inputs, actions: a.actions}
	var err error
	a.prepared, err = planner.preparePlan(ctx)
	var unselected *unselectedError
	if errors.As(err, &unselected) {
		err = errgrpc.Field("spec", "%v", unselected)
	}
	if err != nil {
		a.closeObjects()
	}
	return a, err
}

// runDry runs the engine of restores over the plan with a client that changes nothing. The rows are
// sorted.
func (a *restoreAttempt) runDry(ctx context.Context, server bool, progress func(outcome.Counts)) (_ *storedplan.Writer, messages []string, err error) {
	rows := &dryRunRows{plan: a.prepared.Plan, Writer: storedplan.NewWriter(a.cfg.WorkDir)}
	defer func() {
		if err != nil {
			err = errors.Join(err, rows.Close())
		}
	}()
	recorder := a.inputs.recorder
	recorder.SetPlan(a.prepared.Plan)
	recorder.Planned(&a.prepared.planned)
	a.history = &outcome.History{}
	config := a.engineConfig()
	config.DryRun = &apply.DryRun{Server: server}
	group, working := panics.NewGroup(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return restore.Run(working, config)
	})
	group.Go(func() error { return rows.collect(working, a.cfg, recorder, progress, done) })
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	if c := recorder.Counts(); c.Done < c.Total {
		return nil, nil, fmt.Errorf("%d of %d objects were not planned", c.Total-c.Done, c.Total)
	}
	if err := rows.addOrder(); err != nil {
		return nil, nil, err
	}
	return rows.Writer, rows.messages, rows.Sort()
}

// storePlan completes the header and stores the plan. A location that cannot be written is no error.
func (p *PlannedRestore) storePlan(ctx context.Context, a *restoreAttempt, spec *velerov1.RestoreSpec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	now := a.cfg.Clock.Now().UTC().Truncate(time.Second)
	h := &p.Header
	h.ID, h.Kind, h.Backup, h.Spec, h.Annotations = storedplan.NewID(now), storedplan.KindRestore, spec.BackupName, text, a.restore.Annotations
	h.Created, h.Expires, h.Counts, h.LeftOut = now, now.Add(a.cfg.PlanLifetime), p.Counts(), a.prepared.leftOut
	if a.inputs.readOnly {
		p.Unstored = fmt.Errorf("location %q: %w", a.inputs.location, objectstore.ErrReadOnly)
		return nil
	}
	err = p.Store(ctx, a.inputs.store, h)
	if errors.Is(err, objectstore.ErrReadOnly) || errors.Is(err, objectstore.ErrAccess) {
		p.Unstored, err = err, nil
	}
	return err
}
