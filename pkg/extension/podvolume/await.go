package podvolume

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultTimeout is how long post hooks wait for the data of their Pods.
const DefaultTimeout = 4 * time.Hour

// awaitPause is the time between two looks at requests that are not final.
const awaitPause = 2 * time.Second

// Await waits until the requests of the Pods are final. Once Timeout has passed since the last of
// them was made it cancels the others and does not wait for their ends. It reports false when stop
// was closed before.
func (b *Backupper) Await(ctx context.Context, stop <-chan struct{}, pods []client.ObjectKey) (bool, error) {
	for begin := b.Clock.Now(); ; {
		list, _, err := b.recent.readRequests(b.Clock.Now(), begin, func() (all []Request, err error) {
			err = b.retryCall(ctx, "list the PodVolumeBackups of the backup", func() (err error) {
				all, err = b.listRequests(ctx, NameBackup, BackupLabels(string(b.Backup.UID)))
				return err
			})
			return all, err
		})
		if err != nil {
			return false, err
		}
		open, last := openRequests(list, pods, b.Clock.Now())
		switch {
		case len(open) == 0:
			return true, nil
		case !b.Clock.Now().Before(last.Add(b.Timeout)):
			return true, b.endRequests(ctx, open)
		}
		timer := b.Clock.NewTimer(awaitPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, context.Cause(ctx)
		case <-stop:
			timer.Stop()
			return false, nil
		case <-timer.C():
		}
	}
}

// openRequests returns the requests of the Pods that are not final and may be, and when the last of
// the Pods' requests was made.
func openRequests(list []Request, pods []client.ObjectKey, now time.Time) (open []Request, last time.Time) {
	for i := range list {
		r := &list[i]
		if !slices.Contains(pods, r.Pod) {
			continue
		}
		if made := r.Object.GetCreationTimestamp().Time; made.After(last) {
			last = made
		}
		if !r.Ended() && r.Failure(now) == "" {
			open = append(open, *r)
		}
	}
	return open, last
}

// endRequests cancels requests that took too long.
func (b *Backupper) endRequests(ctx context.Context, open []Request) error {
	reason := fmt.Sprintf("the data was not taken within %s (--fs-backup-timeout)", b.Timeout)
	for i := range open {
		r := &open[i]
		b.Log.WarnContext(ctx, "Cancelled a PodVolumeBackup that took too long", "podVolumeBackup", r.Object.GetName(), "pod", r.Pod, "volume", r.Volume, "timeout", b.Timeout)
		err := b.retryCall(ctx, "cancel PodVolumeBackup "+r.Object.GetName(), func() error { return b.CancelRequest(ctx, r, reason) })
		if err != nil {
			return err
		}
	}
	return nil
}
