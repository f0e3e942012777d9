package upload

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kopia/kopia/snapshot"

	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
)

// keepParents has an upload that lasts keep the content of its parents in the repository: another process may forget
// them meanwhile. The function that it returns ends that.
func (u *kopiaUpload) keepParents(ctx context.Context, parents []*snapshot.Manifest) func() {
	running, end := context.WithCancel(ctx)
	ticker := u.spec.Clock.NewTicker(repository.KeepInterval)
	var kept []string
	var done sync.WaitGroup
	done.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-running.Done():
				return
			case <-ticker.C():
			}
			earlier := kept
			ids, err := u.repository.KeepParents(ctx, u.spec.Source, parents)
			if kept = slices.Concat(ids, earlier); err == nil {
				err = u.repository.ForgetSnapshots(ctx, earlier)
			}
			if err != nil {
				u.failUpload(fmt.Errorf("keep the earlier snapshots: %w", err))
				return
			}
		}
	})
	return func() {
		end()
		done.Wait()
		if len(kept) > 0 {
			_ = u.repository.ForgetSnapshots(ctx, kept) // what is left goes with the next upload or maintenance
		}
	}
}
