package collect

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/linger"
)

// pageLimit is how long a list may take to come to the end of its page when the
// run is told to stop. What it read of the page then is dropped.
const pageLimit = 2 * time.Second

// stopping reports whether the run was told to stop.
func (r *run) stopping() bool {
	select {
	case <-r.Stop:
		return true
	default:
		return false
	}
}

// untilStopped returns the context of lists: it ends, with cause ErrStopped, some
// time after the run was told to stop. done releases it.
func (r *run) untilStopped(ctx context.Context) (lists context.Context, done func()) {
	return linger.Until(ctx, r.Clock, r.Stop, pageLimit, ErrStopped)
}
