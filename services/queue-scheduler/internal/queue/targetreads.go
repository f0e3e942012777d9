package queue

import (
	"context"
	"errors"
	"log/slog"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// targetReads reads what restores write to.
type targetReads struct {
	validator Validator
	log       *slog.Logger
}

// findTargets reads from the backup the namespaces that the restore writes to. Where the backup
// cannot be read in time they are those of the spec alone, all where it names none.
func (l *targetReads) findTargets(ctx context.Context, r *velerov1.Restore) ([]string, error) {
	found, err := l.validator.Targets(ctx, r)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if errors.Is(err, validate.ErrClusterUnread) {
		return nil, err // a later pass repeats the validation
	}
	if err != nil {
		found = validate.Targets(&r.Spec)
		l.log.WarnContext(ctx, "Failed to read backup; locking all namespaces the restore may touch", "restore", r.Name, "namespaces", found, "error", err)
	}
	return found, nil
}
