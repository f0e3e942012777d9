package pluginhost

import (
	"context"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// Restart implements action.Restarter. Only the SDK's asynchronous actions that were registered as
// restartable are called; the error of others wraps action.ErrNotRestartable.
func (o *Operations) Restart(ctx context.Context, c *action.Restart) (action.Restarted, error) {
	p, err := o.plugin(action.Operation{Kind: c.Kind, Action: c.Action})
	if err != nil {
		return action.Restarted{}, err
	}
	if !asynchronous(p.registration.Kind) || !p.registration.Restartable {
		return action.Restarted{}, fmt.Errorf("%w: %s %s", action.ErrNotRestartable, clip(c.Kind), clip(c.Action))
	}
	var again action.Restarted
	if p.registration.Kind == KindAsyncRestoreItemAction {
		again, err = restartRestore(ctx, p, c)
	} else {
		again, err = restartBackup(ctx, p, c)
	}
	switch {
	case again.ID != "": // the rest of the answer counted the first time
		return again, nil
	case err != nil:
		return again, err
	}
	return again, fmt.Errorf("plugin %s: Start: %w: it began no operation", p.name, ErrMalformed)
}

func restartBackup(ctx context.Context, p *plugin, c *action.Restart) (action.Restarted, error) {
	var b velerov1.Backup
	if err := jsonlimit.Unmarshal(c.Job, &b, jsonlimit.Object); err != nil {
		return action.Restarted{}, fmt.Errorf("job: %w: %w", action.ErrObject, err)
	}
	backup, err := action.NewBackup(&b)
	if err != nil {
		return action.Restarted{}, err
	}
	r, err := (&asyncBackup{async{*p}}).Start(ctx, action.FromJSON(c.Item), backup, c.Key)
	return action.Restarted{ID: r.OperationID, Process: r.Process}, err
}

func restartRestore(ctx context.Context, p *plugin, c *action.Restart) (action.Restarted, error) {
	var r velerov1.Restore
	if err := jsonlimit.Unmarshal(c.Job, &r, jsonlimit.Object); err != nil {
		return action.Restarted{}, fmt.Errorf("job: %w: %w", action.ErrObject, err)
	}
	restore, err := action.NewRestore(&r)
	if err != nil {
		return action.Restarted{}, err
	}
	answer, err := (&asyncRestore{async{*p}}).Start(ctx, action.FromJSON(c.Item), action.FromJSON(c.FromBackup), restore, c.Key)
	return action.Restarted{ID: answer.OperationID, Process: answer.Process}, err
}
