package remove

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	defaultRestoreWait = time.Minute
	restorePoll        = 500 * time.Millisecond
)

// removeRestores deletes the Restores of the backup and waits a while until they are gone: their
// files lie in the backup's location, which is found through the Backup. Ones that take longer are
// no failure.
func (j *job) removeRestores(ctx context.Context) error {
	restores, err := j.restores(ctx, j.backup.Name)
	if err != nil {
		return err
	}
	var errs []error
	for i := range restores {
		restore := &restores[i]
		if err := j.held.Confirm(ctx); err != nil {
			return err
		}
		err := j.Client.Delete(ctx, restore, client.Preconditions{UID: &restore.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("restore %q: %w", restore.Name, err))
		}
	}
	if len(errs) > 0 || len(restores) == 0 {
		return errors.Join(errs...)
	}
	return j.awaitRestores(ctx, j.backup.Name)
}

func (r *Remover) awaitRestores(ctx context.Context, backup string) error {
	wait := r.RestoreWait
	if wait == 0 {
		wait = defaultRestoreWait
	}
	ticker := r.Clock.NewTicker(restorePoll)
	defer ticker.Stop()
	for start := r.Clock.Now(); ; {
		left, err := r.restores(ctx, backup)
		if err != nil || len(left) == 0 {
			return err
		}
		if r.Clock.Now().Sub(start) >= wait {
			r.Log.Warn("restores of a deleted backup are still there", "backup", backup, "restores", len(left))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}

func (r *Remover) restores(ctx context.Context, backup string) ([]velerov1.Restore, error) {
	var list velerov1.RestoreList
	if err := r.Reader.List(ctx, &list, client.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("list restores: %w", err)
	}
	var of []velerov1.Restore
	for _, restore := range list.Items {
		if restore.Spec.BackupName == backup {
			of = append(of, restore)
		}
	}
	return of, nil
}
