package acting

import (
	"context"
	"sync"
	"time"
)

// confirmedFor is how long an answer of Config.Confirm counts: less than the sixth of the shortest
// claim timeout (1s) that it has in reserve.
const confirmedFor = 100 * time.Millisecond

// claimConfirmation is when the claim was last known to be this holder's.
type claimConfirmation struct {
	mu sync.Mutex
	at time.Time
}

// confirmClaim makes sure that the backup is still this holder's, before a call that may begin
// something: the process may have slept since it last knew. An error ends the job.
func (p *Pool) confirmClaim(ctx context.Context) error {
	if p.Confirm == nil {
		return nil
	}
	p.confirmed.mu.Lock()
	defer p.confirmed.mu.Unlock()
	// Either clock may stand still while the machine sleeps.
	now := p.Clock.Now()
	if now.Sub(p.confirmed.at) < confirmedFor && now.Round(0).Sub(p.confirmed.at.Round(0)) < confirmedFor {
		return nil
	}
	if err := p.Confirm(ctx); err != nil {
		return &fatalError{err}
	}
	p.confirmed.at = now
	return nil
}
