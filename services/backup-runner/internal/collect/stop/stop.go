// Package stop is how a collection is asked to end early.
package stop

import "errors"

// ErrStopped means that the collection was stopped: what was listed is recorded, and another
// holder resumes behind it.
var ErrStopped = errors.New("told to stop")

// Signal is closed when the collection is to stop. Nil never is.
type Signal <-chan struct{}

// Requested reports whether the collection is to stop.
func (s Signal) Requested() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}
