package remove

import (
	"context"
	"fmt"
	"slices"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// runs reports whether a runner works on the restore, or one will have to: it reads the data of its
// backup.
func runs(phase velerov1.RestorePhase) bool { return !phase.IsNew() && !phase.Terminal() }

// Restoring says which restores of the backup run, "" if none does or the deletion has begun: then
// they are waited for.
func (r *Remover) Restoring(ctx context.Context, b *velerov1.Backup) (string, error) {
	if b.Status.Phase == velerov1.BackupPhaseDeleting {
		return "", nil
	}
	return r.restoring(ctx, b.Name)
}

// restoring says which restores of the backup run, "" if none does.
//
// A deletion asks before its claim, to refuse, and again once the Backup is Deleting: no restore
// that is claimed later begins, because its runner reads the Backup after it has written its claim.
// One that was claimed in between is waited for.
func (r *Remover) restoring(ctx context.Context, backup string) (string, error) {
	restores, err := r.restores(ctx, backup)
	if err != nil {
		return "", err
	}
	var names []string
	for i := range restores {
		if runs(restores[i].Status.Phase) {
			names = append(names, fmt.Sprintf("%q", restores[i].Name))
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	slices.Sort(names)
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
		names = names[:shown]
	}
	return "the backup is being restored by " + strings.Join(names, ", ") + more, nil
}
