package restore

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/job"
)

// remove deletes the record of a restore; the server's finalizer removes its files first.
func remove(ctx context.Context, s *job.Session, r *velerov1.Restore, wait bool) error {
	if err := s.Client.Delete(ctx, r, client.Preconditions{UID: &r.UID}); err != nil {
		return fmt.Errorf("delete restore %q: %w", r.Name, err)
	}
	s.Printf("Restore %q was deleted.\n", r.Name)
	if !wait {
		return nil
	}
	name, uid := r.Name, r.UID
	err := command.WaitUntil(ctx, s.Client, s.Global.Clock, r, &velerov1.RestoreList{}, func() (bool, error) { return r.UID != uid, nil })
	switch {
	case ctx.Err() != nil:
		return &command.ExitError{Code: command.CodeInterrupted, Err: fmt.Errorf("no longer waiting; the deletion of restore %q goes on", name)}
	case apierrors.IsNotFound(err):
		return nil
	default:
		return err
	}
}
