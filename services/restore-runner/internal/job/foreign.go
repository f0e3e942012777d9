package job

import (
	"context"
	"errors"
	"fmt"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/engine"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// leftUnfinished reports whether another server began a restore and has not ended it.
func leftUnfinished(restore *velerov1.Restore) bool {
	phase := restore.Status.Phase
	return (hasBegun(phase) || waitingRestore(phase)) && mark.IsForeign(restore)
}

// admitForeign ends a restore that another server left unfinished, once no server of Velero lives.
// One whose objects had been restored is PartiallyFailed. Its files stay as they are.
func (k *Kind) admitForeign(ctx context.Context, restore *velerov1.Restore) (engine.Decision[*velerov1.Restore], error) {
	server, err := mark.FindForeignServer(ctx, k.cfg.Reader, restore.Namespace)
	switch {
	case err != nil:
		return engine.Decision[*velerov1.Restore]{}, err
	case server != "":
		return engine.NotNow[*velerov1.Restore](fmt.Sprintf("Deployment %q of Velero may continue it", server)), nil
	}
	phase := velerov1.RestorePhasePartiallyFailed
	if restore.Status.Phase == velerov1.RestorePhaseInProgress {
		phase = velerov1.RestorePhaseFailed
	}
	return k.endUnclaimed(phase, errors.New(mark.ForeignReason)), nil
}
