package backup

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

// wait shows a backup's progress until its phase is terminal and turns that
// phase into the command's result.
func wait(ctx context.Context, g *global.Global, c client.WithWatch, b *velerov1.Backup) error {
	progress := follow.NewProgress(g)
	err := follow.Until(ctx, c, g.Clock, b, &velerov1.BackupList{}, func() (bool, error) {
		done, total := 0, 0
		if p := b.Status.Progress; p != nil {
			done, total = p.ItemsBackedUp, p.TotalItems
		}
		progress.Show(string(b.Status.Phase), done, total)
		return b.Status.Phase.Terminal(), nil
	})
	progress.End()
	if err != nil && ctx.Err() != nil {
		return &global.ExitError{Code: global.CodeInterrupted, Err: fmt.Errorf(
			"no longer waiting; backup %q keeps running, `holdfast backup describe %s` shows how far it is", b.Name, b.Name)}
	}
	if err != nil {
		return err
	}
	return outcome(g, b)
}

// outcome reports how a backup ended.
func outcome(g *global.Global, b *velerov1.Backup) error {
	s := &b.Status
	items := 0
	if s.Progress != nil {
		items = s.Progress.ItemsBackedUp
	}
	summary := fmt.Sprintf("backup %q: %s, %d items, %d warnings, %d errors", b.Name, s.Phase, items, s.Warnings, s.Errors)
	switch s.Phase {
	case velerov1.BackupPhaseCompleted:
		g.Printf("%s\n", strings.ToUpper(summary[:1])+summary[1:])
		return nil
	case velerov1.BackupPhasePartiallyFailed:
		return &global.ExitError{Code: global.CodePartial, Err: fmt.Errorf("%s; `holdfast backup describe %s` lists them", summary, b.Name)}
	case velerov1.BackupPhaseFailedValidation:
		return fmt.Errorf("%s: %s", summary, strings.Join(s.ValidationErrors, "; "))
	case velerov1.BackupPhaseFailed:
		return fmt.Errorf("%s: %s", summary, s.FailureReason)
	default:
		return errors.New(summary)
	}
}
