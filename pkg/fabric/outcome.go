package fabric

import "time"

// Outcome says what becomes of a hint. The zero Outcome is Done.
type Outcome struct {
	verdict verdict
	after   time.Duration
	err     error
}

type verdict int

const (
	verdictDone verdict = iota
	verdictRetry
	verdictDead
	verdictAgain
)

// Done says that the effect is durable, or that there was nothing to do.
func Done() Outcome { return Outcome{} }

// Retry delivers the hint again after a delay; err, if any, is logged.
func Retry(after time.Duration, err error) Outcome {
	return Outcome{verdict: verdictRetry, after: max(after, time.Millisecond), err: err}
}

// DeadLetter gives up: the hint and err are stored in the dead letter stream,
// then the hint is terminated. Hints of WorkOperationPoll are timers and are
// retried after a minute instead.
func DeadLetter(err error) Outcome { return Outcome{verdict: verdictDead, err: err} }

// Again acknowledges the hint and publishes it anew, because work is left.
func Again() Outcome { return Outcome{verdict: verdictAgain} }
