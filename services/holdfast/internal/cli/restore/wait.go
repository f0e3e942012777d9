package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/follow"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/global"
)

// wait shows a restore's progress until its phase is terminal and turns that
// phase into the command's result.
func wait(ctx context.Context, g *global.Global, c client.WithWatch, r *velerov1.Restore) error {
	progress := follow.NewProgress(g)
	err := follow.Until(ctx, c, g.Clock, r, &velerov1.RestoreList{}, func() (bool, error) {
		done, total := 0, 0
		if p := r.Status.Progress; p != nil {
			done, total = p.ItemsRestored, p.TotalItems
		}
		progress.Show(string(r.Status.Phase), done, total)
		return r.Status.Phase.Terminal(), nil
	})
	progress.End()
	if err != nil && ctx.Err() != nil {
		return &global.ExitError{Code: global.CodeInterrupted, Err: fmt.Errorf(
			"no longer waiting; restore %q keeps running, `holdfast restore describe %s` shows how far it is", r.Name, r.Name)}
	}
	if err != nil {
		return err
	}
	return outcome(g, r)
}

// outcome reports how a restore ended.
func outcome(g *global.Global, r *velerov1.Restore) error {
	s := &r.Status
	items := 0
	if s.Progress != nil {
		items = s.Progress.ItemsRestored
	}
	summary := fmt.Sprintf("restore %q: %s, %d items, %d warnings, %d errors", r.Name, s.Phase, items, s.Warnings, s.Errors)
	switch s.Phase {
	case velerov1.RestorePhaseCompleted:
		g.Printf("%s\n", strings.ToUpper(summary[:1])+summary[1:])
		return nil
	case velerov1.RestorePhasePartiallyFailed:
		return &global.ExitError{Code: global.CodePartial, Err: fmt.Errorf("%s; `holdfast restore describe %s` lists them", summary, r.Name)}
	case velerov1.RestorePhaseFailedValidation:
		return fmt.Errorf("%s: %s", summary, strings.Join(s.ValidationErrors, "; "))
	case velerov1.RestorePhaseFailed:
		return fmt.Errorf("%s: %s", summary, s.FailureReason)
	default:
		return errors.New(summary)
	}
}
