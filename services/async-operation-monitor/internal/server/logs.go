package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// ReasonNoLogs is the reason of the error where the protocol of an action has no logs.
const ReasonNoLogs = "NO_OPERATION_LOGS"

// Logs sends what an operation has logged from since on, oldest first; with follow until it has
// ended. Errors are those of Target, of OfBackup and of send, and one that wraps
// errgrpc.ErrUnsupported where the protocol of its action has no logs.
func (s *Source) Logs(ctx context.Context, owner Owner, target Target, since time.Time, follow bool, send func(action.LogLine) error) error {
	f, err := s.readOperations(ctx, owner)
	if err != nil {
		return err
	}
	ops, err := f.findOperation(owner, target)
	if err != nil {
		return err
	}
	job, err := operation.EncodeJob(f.job, owner.Kind)
	if err != nil {
		return fmt.Errorf("encode %s: %w", owner, err)
	}
	for _, op := range ops {
		err = s.streamLogs(ctx, &op, job, since, follow, send)
		if !errors.Is(err, action.ErrUnknownAction) {
			break
		}
	}
	return refusedError(err, owner, target)
}

// findOperation finds an operation. Of one that is in a file alone the kind of its action is not known: it is
// returned with each that it may have.
func (f *foundOperations) findOperation(owner Owner, target Target) (ops []operation.Operation, err error) {
	var actions []string
	for _, op := range f.ops {
		if target.matchesOperation(op.ID, op.Action) {
			ops, actions = append(ops, op), append(actions, op.Action)
		}
	}
	for _, o := range f.file {
		if !target.matchesOperation(o.Spec.ID, o.Spec.Action()) {
			continue
		}
		actions = append(actions, o.Spec.Action())
		for _, kind := range kindsOf(f.kind) {
			ops = append(ops, operation.Operation{Kind: string(kind), Action: o.Spec.Action(), ID: o.Spec.ID})
		}
	}
	if err := target.checkTarget(owner, slices.Clone(actions)); err != nil {
		return nil, err
	}
	return ops, nil
}

func (s *Source) streamLogs(ctx context.Context, op *operation.Operation, job []byte, since time.Time, follow bool, send func(action.LogLine) error) error {
	for line, err := range s.Actions.ActionOf(op).Logs(ctx, op.ActionOperation(), job, since, follow) {
		if err != nil {
			return err
		}
		if err := send(line); err != nil {
			return err
		}
	}
	return nil
}

// refusedError makes what an action answers the error of a call.
func refusedError(err error, owner Owner, target Target) error {
	switch {
	case errors.Is(err, action.ErrNoLogs):
		return errgrpc.WithReason(fmt.Errorf("operation %q of %s: %w: %w", target.ID, owner, errgrpc.ErrUnsupported, err), ReasonNoLogs, nil)
	case errors.Is(err, operationhome.ErrGone), errors.Is(err, action.ErrUnknownOperation), errors.Is(err, action.ErrUnknownAction):
		return fmt.Errorf("operation %q of %s: %w: %w", target.ID, owner, errgrpc.ErrNotFound, err)
	}
	return err
}

// kindsOf are what an action may be registered as that began an operation of a kind of job, where the
// name of the action alone is known. Both protocols give an operation of one binary the same ID.
func kindsOf(job string) []pluginhost.Kind {
	if job == operation.KindRestore {
		return []pluginhost.Kind{pluginhost.KindAsyncRestoreItemAction, pluginhost.KindRestoreItemActionV2}
	}
	return []pluginhost.Kind{pluginhost.KindAsyncBackupItemAction, pluginhost.KindBackupItemActionV2}
}
