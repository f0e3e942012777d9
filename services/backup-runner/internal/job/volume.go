package job

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/ledger"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// volumePause is the time between two looks at a volume that another backup has.
const volumePause = time.Second

// lockVolume waits until no other backup takes a snapshot of the volume, and keeps
// others from it until unlock is called.
func (j *execution) lockVolume(ctx context.Context, volume string) (unlock func(), err error) {
	for reported := false; ; reported = true {
		err := j.Ledger.LockVolume(ctx, j.backup.UID, volume)
		if err == nil {
			return func() { j.unlockVolume(ctx, volume) }, nil
		}
		waits := errors.Is(err, ledger.ErrVolumeBusy) || errors.Is(err, ledger.ErrNotListed) || kube.IsTransient(err)
		if !waits || ctx.Err() != nil {
			return nil, err
		}
		if !reported {
			j.log.InfoContext(ctx, "waiting for a volume", "volume", volume, "reason", err)
		}
		timer := j.Clock.NewTimer(volumePause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-j.stop:
			timer.Stop()
			return nil, collect.ErrStopped
		case <-timer.C():
		}
	}
}

// unlockVolume lets others take snapshots of the volume. Where it fails they may once
// this backup has left the ledger.
func (j *execution) unlockVolume(ctx context.Context, volume string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), handOverTime)
	defer stop()
	if err := j.Ledger.UnlockVolume(ctx, j.backup.UID, volume); err != nil {
		j.log.WarnContext(ctx, "volume not unlocked, it will be when the backup is collected", "volume", volume, "error", err)
	}
}
