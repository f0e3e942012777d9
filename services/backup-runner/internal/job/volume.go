package job

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect"
)

// volumePause is the time between two attempts to lock a volume that another backup has.
const volumePause = time.Second

// volumeLocks are the volumes of a backup, of which one backup at a time takes a snapshot.
type volumeLocks struct {
	ledger Ledger
	uid    types.UID       // of the backup
	stop   <-chan struct{} // closed when the process stops
	clock  clock.WithTicker
	log    *slog.Logger
}

// lockVolume waits until no other backup takes a snapshot of the volume, and keeps others from it until
// unlock is called.
func (v *volumeLocks) lockVolume(ctx context.Context, volume string) (unlock func(), err error) {
	for reported := false; ; reported = true {
		err := v.ledger.LockVolume(ctx, v.uid, volume)
		if err == nil {
			return func() { v.unlockVolume(ctx, volume) }, nil
		}
		waits := errors.Is(err, ledger.ErrVolumeBusy) || errors.Is(err, ledger.ErrNotListed) || kube.IsTransient(err)
		if !waits || ctx.Err() != nil {
			return nil, err
		}
		if !reported {
			v.log.InfoContext(ctx, "Waiting for the lock of a volume", "volume", volume, "reason", err)
		}
		timer := v.clock.NewTimer(volumePause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-v.stop:
			timer.Stop()
			return nil, collect.ErrStopped
		case <-timer.C():
		}
	}
}

// unlockVolume lets others take snapshots of the volume. Where it fails they may once this backup has
// left the ledger.
func (v *volumeLocks) unlockVolume(ctx context.Context, volume string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWriteLimit)
	defer stop()
	if err := v.ledger.UnlockVolume(ctx, v.uid, volume); err != nil {
		v.log.WarnContext(ctx, "Failed to unlock volume; it stays locked while the backup is InProgress", "volume", volume, "error", err)
	}
}
