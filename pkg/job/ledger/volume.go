package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// volumePrefix begins the keys of volumes that are about to be snapshotted: a hash of the volume,
// whose value is the UID of the job.
const volumePrefix = "volume."

// Errors of LockVolume, for which it may be called again later.
var (
	// ErrVolumeBusy: another job is taking a snapshot of the volume.
	ErrVolumeBusy = errors.New("another job is taking a snapshot of this volume")
	// ErrNotListed: the job is not in the list, or not yet again after it was lost.
	ErrNotListed = errors.New("the job is not in the ledger")
)

// LockVolume lets a job alone take a snapshot of a volume, by the provider's name of it. The lock
// lasts until UnlockVolume, and goes with the entry of the job; a job that has it gets it again. A
// job should hold few at once.
func (l *Ledger) LockVolume(ctx context.Context, uid types.UID, volume string) error {
	return l.swapDocument(ctx, func(b *ledgerDocument) error {
		key := volumeKey(volume)
		holder := types.UID(b.cm.Data[key])
		switch {
		case !b.hasEntry(uid):
			return ErrNotListed
		case holder == uid:
			return errUnchanged
		case holder != "" && b.hasEntry(holder):
			return fmt.Errorf("%w: %s", ErrVolumeBusy, volume)
		}
		b.setText(key, string(uid))
		return nil
	})
}

// UnlockVolume ends the lock of a job; another's stays.
func (l *Ledger) UnlockVolume(ctx context.Context, uid types.UID, volume string) error {
	return l.swapDocument(ctx, func(b *ledgerDocument) error {
		key := volumeKey(volume)
		if types.UID(b.cm.Data[key]) != uid {
			return errUnchanged
		}
		delete(b.cm.Data, key)
		return nil
	})
}

func volumeKey(volume string) string {
	const bytes = 16
	sum := sha256.Sum256([]byte(volume))
	return volumePrefix + hex.EncodeToString(sum[:bytes])
}

func (b *ledgerDocument) hasEntry(uid types.UID) bool {
	_, ok := b.cm.Data[entryPrefix+string(uid)]
	return ok
}

// unlockVolumes drops the locks of a job that leaves the list.
func (b *ledgerDocument) unlockVolumes(uid types.UID) {
	for key, holder := range b.cm.Data {
		if strings.HasPrefix(key, volumePrefix) && holder == string(uid) {
			delete(b.cm.Data, key)
		}
	}
}
