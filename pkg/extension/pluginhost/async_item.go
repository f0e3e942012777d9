package pluginhost

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	pluginv1 "github.com/holdfast-io/holdfast/pkg/plugin/wire/holdfast/plugin/v1"
)

// async is what the SDK's asynchronous actions have in common. They are called in the process that
// all jobs share: an operation in it can last longer than the session.
type async struct{ plugin }

// AppliesTo calls the plugin.
func (a *async) AppliesTo(ctx context.Context) (action.Selector, error) {
	return a.readSelector(ctx, nil)
}

// OperationKind implements action.BackupOperations and action.RestoreOperations.
func (a *async) OperationKind() string { return string(a.registration.Kind) }

// Prepare implements action.Preparer.
func (a *async) Prepare(ctx context.Context) error {
	return a.worker.awaitReady(ctx, a.newShortCall("Prepare"))
}

// startAnswer is what both kinds answer.
type startAnswer interface {
	GetOperationId() string
	GetInProcess() bool
}

// beginOperation makes the call that may begin an operation of the job, and keeps the process running if one is
// in it.
func (a *async) beginOperation(ctx context.Context, p *process, job []byte, ask func() (startAnswer, error)) (id, process string, err error) {
	startID, err := p.startID(ctx)
	if err == nil && len(startID) > action.MaxProcess {
		err = checkStartID(startID)
	}
	if err != nil {
		return "", "", err
	}
	answer, err := ask()
	if err != nil {
		return "", "", err
	}
	id = answer.GetOperationId()
	if err := a.checkOperationID(ctx, p, id, job); err != nil {
		return "", "", err
	}
	if id == "" || !answer.GetInProcess() {
		return id, "", nil
	}
	a.worker.addOperation(a.operationOf(id), p)
	return id, startID, checkStartID(startID)
}

// asyncBackup serves AsyncActionService for actions on objects that are backed up.
type asyncBackup struct{ async }

var (
	_ action.BackupItem       = (*asyncBackup)(nil)
	_ action.BackupOperations = (*asyncBackup)(nil)
	_ action.BackupStarter    = (*asyncBackup)(nil)
	_ action.Preparer         = (*asyncBackup)(nil)
)

// Execute fails: without a key nothing is begun.
func (a *asyncBackup) Execute(_ context.Context, object *action.Object, _ *action.Backup) (action.BackupResult, error) {
	c := a.newExecuteCall("StartBackup", object)
	return action.BackupResult{}, c.callError(ErrNoKey, false)
}

// Start calls the plugin.
func (a *asyncBackup) Start(ctx context.Context, object *action.Object, backup *action.Backup, key string) (r action.BackupResult, err error) {
	if key == "" {
		return a.Execute(ctx, object, backup)
	}
	err = a.worker.callProcess(ctx, a.newExecuteCall("StartBackup", object), func(ctx context.Context, p *process) error {
		item, err := object.JSON()
		if err != nil {
			return err
		}
		var answer *pluginv1.StartBackupResponse
		r.OperationID, r.Process, err = a.beginOperation(ctx, p, backup.JSON(), func() (startAnswer, error) {
			answer, err = pluginv1.NewAsyncActionServiceClient(p.conn).StartBackup(ctx, &pluginv1.StartBackupRequest{
				Plugin: a.name, Item: item, Backup: backup.JSON(), IdempotencyKey: key})
			return answer, err
		})
		if err != nil {
			return err
		}
		if r.Object, err = answerIfAny(object, answer.GetItem(), false); err != nil {
			return err
		}
		if r.Additional, err = itemsOf("additional_items", answer.GetAdditionalItems()); err != nil {
			return err
		}
		r.PostOperation, err = itemsOf("post_operation_items", answer.GetPostOperationItems())
		return err
	})
	return r, err
}

// asyncRestore serves AsyncActionService for actions on objects that are restored.
type asyncRestore struct{ async }

var (
	_ action.RestoreItem       = (*asyncRestore)(nil)
	_ action.RestoreOperations = (*asyncRestore)(nil)
	_ action.RestoreStarter    = (*asyncRestore)(nil)
	_ action.Preparer          = (*asyncRestore)(nil)
)

// Execute fails: without a key nothing is begun.
func (a *asyncRestore) Execute(_ context.Context, object, _ *action.Object, _ *action.Restore) (action.RestoreResult, error) {
	c := a.newExecuteCall("StartRestore", object)
	return action.RestoreResult{}, c.callError(ErrNoKey, false)
}

// Start calls the plugin.
func (a *asyncRestore) Start(ctx context.Context, object, fromBackup *action.Object, restore *action.Restore, key string) (r action.RestoreResult, err error) {
	if key == "" {
		return a.Execute(ctx, object, fromBackup, restore)
	}
	err = a.worker.callProcess(ctx, a.newExecuteCall("StartRestore", object), func(ctx context.Context, p *process) error {
		item, original, err := encodeBoth(object, fromBackup)
		if err != nil {
			return err
		}
		var answer *pluginv1.StartRestoreResponse
		r.OperationID, r.Process, err = a.beginOperation(ctx, p, restore.JSON(), func() (startAnswer, error) {
			answer, err = pluginv1.NewAsyncActionServiceClient(p.conn).StartRestore(ctx, &pluginv1.StartRestoreRequest{
				Plugin: a.name, Item: item, ItemFromBackup: original, Restore: restore.JSON(), IdempotencyKey: key})
			return answer, err
		})
		if err != nil {
			return err
		}
		r.Skip = answer.GetSkipRestore()
		if r.Object, err = answerIfAny(object, answer.GetItem(), true); err != nil {
			return err
		}
		r.Additional, err = itemsOf("additional_items", answer.GetAdditionalItems())
		return err
	})
	return r, err
}
