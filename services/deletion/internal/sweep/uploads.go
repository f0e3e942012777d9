package sweep

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// uploadAge is how old an unfinished upload is before no process can still be writing it, whatever
// its backup does.
const uploadAge = 24 * time.Hour

// sweepUploads ends the unfinished uploads of backups that ended, and all of this cluster's that are a
// day old. Where the permission for it is missing they are left to a rule of the bucket.
func (p *sweepPass) sweepUploads(ctx context.Context) error {
	return p.remover.abortUploads(ctx, layout.BackupsDir, func(u objectstore.Upload) (bool, error) {
		name, ok := layout.BackupName(u.Key)
		if !ok || layout.CheckName(name) != nil {
			return false, nil
		}
		own, ok := p.owners[name]
		if !ok {
			var err error
			if own, err = p.inspector.readDirOwner(ctx, name); err != nil {
				return false, err
			}
			p.owners[name] = own
		}
		if own.kind != oursKind {
			return false, nil
		}
		if p.sweeper.Clock.Since(u.Begun) >= uploadAge {
			return true, nil
		}
		stages, err := p.inspector.backupStages(ctx, name)
		return err == nil && stages[types.UID(own.uid)] == done, err
	})
}
