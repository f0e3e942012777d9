package rawlist

import (
	"errors"
	"fmt"
)

// Sentinels of this package.
var (
	// ErrExpired means that the revision or the continue token is too old for the server (410
	// Gone); errors.As finds an *ExpiredError.
	ErrExpired = errors.New("the revision has been compacted away")
	// ErrRevision means that the server answered at another revision than the one asked for, as
	// aggregated API servers do.
	ErrRevision = errors.New("the answer is not of the revision asked for")
	// ErrPageTooLarge means that a page exceeds Options.MaxPageBytes.
	ErrPageTooLarge = errors.New("page too large")
	// ErrStalled means that an answer stopped arriving.
	ErrStalled = errors.New("the server stopped sending")
)

// ExpiredError is a 410 Gone answer.
type ExpiredError struct {
	// Continue, if not empty, continues after the last key of the expired token at the newest
	// revision instead. The server sends it from the second page on.
	Continue string
	// Message is the server's.
	Message string
}

// Error implements error.
func (e *ExpiredError) Error() string { return fmt.Sprintf("%v: %s", ErrExpired, e.Message) }

// Is makes errors.Is(err, ErrExpired) true.
func (e *ExpiredError) Is(target error) bool { return target == ErrExpired }

// StatusError is an answer other than 200 that retrying did not change.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Reason and Message come from the Status object of the answer, if it was one.
	Reason, Message string
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the server answered with status %d", e.Code)
	}
	return fmt.Sprintf("the server answered with status %d: %s", e.Code, e.Message)
}

// SinkError wraps an error of the consumer, which is never retried.
type SinkError struct{ Err error }

// Error implements error.
func (e *SinkError) Error() string { return e.Err.Error() }

// Unwrap returns the consumer's error.
func (e *SinkError) Unwrap() error { return e.Err }
