package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// awaitTerminal shows a job's progress until its phase is terminal and turns that phase into the command's
// result.
func (k *Kind[T]) awaitTerminal(ctx context.Context, s *Session, obj T) error {
	progress := command.NewProgress(s.Global)
	err := command.WaitUntil(ctx, s.Client, s.Global.Clock, obj, func() (bool, error) {
		status := k.Status(obj)
		progress.Show(string(status.Phase), status.Done, status.Total)
		return status.Stage == mark.StageEnded, nil
	})
	progress.End()
	if err != nil && ctx.Err() != nil {
		return &command.ExitError{Code: command.CodeInterrupted, Err: fmt.Errorf(
			"no longer waiting; %[1]s %[2]q keeps running, `holdfast %[1]s describe %[2]s` shows how far it is", k.kindNoun(), obj.GetName())}
	}
	if err != nil {
		return err
	}
	return k.reportOutcome(s, obj)
}

// validationPatience is how long create without --wait waits for the result of the validation.
const validationPatience = 2 * time.Second

// watchValidation returns the error of a job that is refused within validationPatience. A backup that is
// queued and a restore that was planned, which may refuse it too, end the wait. One that is not judged by
// then, or cannot be read, is no error.
func (k *Kind[T]) watchValidation(ctx context.Context, s *Session, obj T) error {
	limited, stop := context.WithTimeout(ctx, validationPatience)
	defer stop()
	err := command.WaitUntil(limited, s.Client, s.Global.Clock, obj, func() (bool, error) {
		status := k.Status(obj)
		return !status.Phase.IsNew() && status.Phase != velerov1.BackupPhaseInProgress || status.Total > 0, nil
	})
	if err != nil || k.Status(obj).Phase != velerov1.BackupPhaseFailedValidation {
		return nil //nolint:nilerr // the job was requested
	}
	return k.reportOutcome(s, obj)
}

// reportOutcome reports how a job ended.
func (k *Kind[T]) reportOutcome(s *Session, obj T) error {
	status := k.Status(obj)
	summary := fmt.Sprintf("%q: %s, %d items, %d warnings, %d errors", obj.GetName(), status.Phase, status.Done, status.Warnings, status.Errors)
	switch status.Phase {
	case velerov1.BackupPhaseCompleted:
		s.Printf("%s %s\n", k.Name, summary)
		return nil
	case velerov1.BackupPhasePartiallyFailed:
		return &command.ExitError{Code: command.CodePartial, Err: fmt.Errorf(
			"%[1]s %[2]s; `holdfast %[1]s describe %[3]s` lists them", k.kindNoun(), summary, obj.GetName())}
	case velerov1.BackupPhaseFailedValidation:
		return fmt.Errorf("%s %s: %s", k.kindNoun(), summary, strings.Join(status.ValidationErrors, "; "))
	case velerov1.BackupPhaseFailed:
		return fmt.Errorf("%s %s: %s", k.kindNoun(), summary, status.FailureReason)
	default:
		return errors.New(k.kindNoun() + " " + summary)
	}
}
