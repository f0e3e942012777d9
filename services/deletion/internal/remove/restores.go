package remove

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

const (
	// restoreWait bounds the wait for the backup's restores to go (Velero 1.18).
	restoreWait = time.Minute
	restorePoll = 500 * time.Millisecond
)

// namespaceRestores are the Restores of a namespace.
type namespaceRestores struct {
	reader    client.Reader // uncached
	client    client.Client
	namespace string
	clock     clock.WithTicker
	log       *slog.Logger
}

func (r *Remover) restoreSet() namespaceRestores {
	return namespaceRestores{reader: r.Reader, client: r.Client, namespace: r.Namespace, clock: r.Clock, log: r.Log}
}

// restoresOf returns the Restores of a backup.
func (r namespaceRestores) restoresOf(ctx context.Context, backup string) ([]velerov1.Restore, error) {
	var list velerov1.RestoreList
	if err := r.reader.List(ctx, &list, client.InNamespace(r.namespace)); err != nil {
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

// runningRestores returns which restores of the backup run, "" if none does.
//
// A deletion checks before its claim, to refuse, and again once the Backup is Deleting: no restore
// that is claimed later begins, because its runner reads the Backup after it has written its claim.
// One that was claimed in between is waited for.
func (r namespaceRestores) runningRestores(ctx context.Context, backup string) (string, error) {
	restores, err := r.restoresOf(ctx, backup)
	if err != nil {
		return "", err
	}
	var names []string
	for i := range restores {
		if isRunning(restores[i].Status.Phase) {
			names = append(names, fmt.Sprintf("%q", restores[i].Name))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(names)-maxNamed)
		names = names[:maxNamed]
	}
	return "the backup is being restored by " + strings.Join(names, ", ") + more, nil
}

// isRunning reports whether a runner works on the restore, or one will have to: it reads the data of its
// backup.
func isRunning(phase velerov1.RestorePhase) bool { return !phase.IsNew() && !phase.Terminal() }

// removeRestores deletes the Restores of the backup and waits a while until they are gone: their files lie
// in the backup's location, which is found through the Backup. Ones that take longer are no
// failure. The claim is confirmed before each.
func (r namespaceRestores) removeRestores(ctx context.Context, backup string, confirm func(context.Context) error) error {
	restores, err := r.restoresOf(ctx, backup)
	if err != nil {
		return err
	}
	var errs []error
	for i := range restores {
		restore := &restores[i]
		if err := confirm(ctx); err != nil {
			return err
		}
		err := r.client.Delete(ctx, restore, client.Preconditions{UID: &restore.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("restore %q: %w", restore.Name, err))
		}
	}
	if len(errs) > 0 || len(restores) == 0 {
		return errors.Join(errs...)
	}
	return r.awaitRemoved(ctx, backup)
}

// awaitRemoved waits until the Restores of the backup are gone, or for as long as restoreWait.
func (r namespaceRestores) awaitRemoved(ctx context.Context, backup string) error {
	ticker := r.clock.NewTicker(restorePoll)
	defer ticker.Stop()
	for start := r.clock.Now(); ; {
		left, err := r.restoresOf(ctx, backup)
		if err != nil || len(left) == 0 {
			return err
		}
		if r.clock.Now().Sub(start) >= restoreWait {
			r.log.Warn("Restores of a deleted backup still exist; no longer waiting for their removal", "backup", backup, "restores", len(left))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}
