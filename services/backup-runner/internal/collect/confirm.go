package collect

import (
	"context"
	"sync"
	"time"
)

// confirmed is how long an answer of Job.Confirm stands: less than the sixth of the
// shortest claim timeout (1s) that it has in reserve.
const confirmed = 100 * time.Millisecond

// confirmation is when the claim was last known to be this holder's.
type confirmation struct {
	mu sync.Mutex
	at time.Time
}

// confirm makes sure that the backup is still this holder's, before a call that may
// begin something: the process may have slept since it last knew. An error ends the
// job.
func (r *run) confirm(ctx context.Context) error {
	if r.Confirm == nil {
		return nil
	}
	r.mine.mu.Lock()
	defer r.mine.mu.Unlock()
	// Either clock may stand still while the machine sleeps.
	now := r.Clock.Now()
	if now.Sub(r.mine.at) < confirmed && now.Round(0).Sub(r.mine.at.Round(0)) < confirmed {
		return nil
	}
	if err := r.Confirm(ctx); err != nil {
		return &fatalError{err}
	}
	r.mine.at = now
	return nil
}
