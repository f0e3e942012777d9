package messaging

import "time"

// Outcome is what becomes of a hint. The zero Outcome is Done.
type Outcome struct {
	kind  outcomeKind
	after time.Duration
	err   error
}

type outcomeKind int

const (
	outcomeDone outcomeKind = iota
	outcomeRetry
	outcomeDead
)

// Done means that the effect is durable, or that there was nothing to do.
func Done() Outcome { return Outcome{} }

// RetryAfter delivers the hint again after a delay: the work continues, and nothing has failed.
func RetryAfter(after time.Duration) Outcome { return Retry(after, nil) }

// Retry delivers the hint again after a delay; err, if any, is logged.
func Retry(after time.Duration, err error) Outcome {
	return Outcome{kind: outcomeRetry, after: max(after, time.Millisecond), err: err}
}

// DeadLetter ends the retries: the hint and err are stored in the dead letter stream, then the hint
// is terminated.
func DeadLetter(err error) Outcome { return Outcome{kind: outcomeDead, err: err} }

// Retries reports that the hint is delivered again.
func (o Outcome) Retries() bool { return o.kind == outcomeRetry }

// Delay is after how long the hint is delivered again; 0 where it is not.
func (o Outcome) Delay() time.Duration { return o.after }
