package plan

import "errors"

// ErrStopped means that the collection was stopped: what was listed is recorded, and another
// holder resumes behind it.
var ErrStopped = errors.New("the process is stopping")

// StopSignal is closed when the collection is to stop. Nil never is.
type StopSignal <-chan struct{}

// Requested reports whether the collection is to stop.
func (s StopSignal) Requested() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}
