package job

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
)

// checkAdmitted compares the plan with what the restore was admitted for: in another namespace it could
// meet a job that runs. That happens when the backup was replaced since. Backups that the restore
// ignores by its annotation are a warning.
func (p *restorePlanner) checkAdmitted(ctx context.Context, made *plan.Plan) error {
	var entry ledger.Entry
	var found bool
	err := p.in.retryCall(ctx, "read the ledger", func() (err error) {
		entry, found, err = p.in.cfg.Ledger.Get(ctx, p.in.restore.UID)
		return err
	})
	if err != nil {
		return fmt.Errorf("look up what the restore was admitted for: %w", err)
	}
	if !found {
		return nil // a lost ledger is built again from what runs
	}
	if stray := namespacesOutside(made, entry.Namespaces); len(stray) > 0 {
		return fatalErrorf("the backup holds objects for namespaces that the restore was not admitted for: %s", ledger.JoinNames(stray))
	}
	if len(entry.Beside) > 0 {
		p.in.recorder.Warn(outcome.General, "the restore began beside running backups of the same namespaces, as its annotation asks: "+ledger.JoinNames(entry.Beside))
	}
	return nil
}

// namespacesOutside returns the namespaces a plan writes to that are not among the admitted ones.
func namespacesOutside(p *plan.Plan, admitted []string) []string {
	if slices.Contains(admitted, ledger.All) {
		return nil
	}
	var stray []string
	for _, ns := range p.Namespaces() {
		if !slices.Contains(admitted, ns.Target) && !slices.Contains(stray, ns.Target) {
			stray = append(stray, ns.Target)
		}
	}
	slices.Sort(stray)
	return stray
}
