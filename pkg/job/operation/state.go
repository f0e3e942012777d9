package operation

import (
	"fmt"
	"time"
)

// Event is something that happened to an operation and must not be forgotten.
type Event struct {
	// Operation is the index in the list.
	Operation int       `json:"operation"`
	Time      time.Time `json:"time"`
	// Exactly one of these is set.
	Request *Request `json:"request,omitempty"`
	Cancel  *Cancel  `json:"cancel,omitempty"`
	Answer  *Answer  `json:"answer,omitempty"`
	End     *End     `json:"end,omitempty"`
}

// maxEventText bounds each text of an event that is kept, in bytes. Writers keep to less.
const maxEventText = 2 << 10

// cutTexts cuts texts that are too long.
func (e *Event) cutTexts() {
	var texts []*string
	switch {
	case e.Request != nil:
		texts = []*string{&e.Request.Reason}
	case e.Cancel != nil:
		texts = []*string{&e.Cancel.Reason}
	case e.Answer != nil:
		texts = []*string{&e.Answer.Error}
	case e.End != nil:
		texts = []*string{&e.End.Error, &e.End.Units, &e.End.Description}
	}
	for _, text := range texts {
		*text = ClipTo(*text, maxEventText)
	}
}

// Request is that an operation has to end: the process that polls it next intends to cancel it.
type Request struct {
	// Reason is the error of the failed operation: "cancelled by ann".
	Reason string `json:"reason"`
}

// Cancel is the intent to cancel an operation. It is recorded before the action is called, which is
// done once for each record of it.
type Cancel struct {
	// Reason is the error of the failed operation: "timed out after 4h0m0s".
	Reason string `json:"reason"`
}

// Answer is the answer of an action to a call of Cancel.
type Answer struct {
	// Accepted means that the action tries to end the operation.
	Accepted bool `json:"accepted"`
	// Error is the error of the call, which is not one of the operation.
	Error string `json:"error,omitempty"`
}

// End is how an operation ended.
type End struct {
	// Error is why it failed; empty for one that completed.
	Error string `json:"error,omitempty"`
	Progress
}

// State is what is known of an operation.
type State struct {
	Phase Phase
	// Error is why it failed.
	Error string
	Progress
	// Request is the first request to end it; nil while there is none.
	Request *Request
	// Cancel is the last intent to cancel it, CancelTime when that was; nil while there is none.
	Cancel     *Cancel
	CancelTime time.Time
	// Cancels counts the intents: how often the action may have been called.
	Cancels int
	// Answer is the action's answer to that; nil while none is recorded.
	Answer *Answer
	// EndTime is when the end was seen.
	EndTime time.Time
}

func (s *State) endState(e *End, at time.Time) {
	s.Phase, s.Error, s.Progress, s.EndTime = Completed, e.Error, e.Progress, at
	if e.Error != "" {
		s.Phase = Failed
	}
}

// applyEvent changes the state of an operation by an event. Nothing happens to an operation that has
// ended.
func applyEvent(states []State, e *Event) error {
	if e.Operation < 0 || e.Operation >= len(states) {
		return fmt.Errorf("%w: operation: %d of %d", ErrDamaged, e.Operation, len(states))
	}
	s := &states[e.Operation]
	if s.Phase.Ended() {
		return nil
	}
	switch {
	case e.Request != nil:
		if s.Request == nil {
			s.Request = e.Request
		}
	case e.Cancel != nil:
		s.Cancel, s.CancelTime, s.Answer = e.Cancel, e.Time, nil
		s.Cancels++
	case e.Answer != nil:
		s.Answer = e.Answer
	case e.End != nil:
		s.endState(e.End, e.Time)
	default:
		return fmt.Errorf("%w: an event without content", ErrDamaged)
	}
	return nil
}
