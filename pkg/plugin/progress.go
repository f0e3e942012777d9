package plugin

import "time"

// State is where an operation is.
type State int

// States of an operation. The zero State is none of them, so a Progress has to say.
const (
	// Pending is accepted and not begun.
	Pending State = iota + 1
	// Running is under way.
	Running
	// Succeeded is ended as wanted.
	Succeeded
	// Failed is ended with an error.
	Failed
	// Cancelled is ended because it was cancelled.
	Cancelled
)

// Progress is how far an operation is.
type Progress struct {
	// State it is in.
	State State
	// Error is the reason why it failed; only with Failed.
	Error string
	// Done and Total are in units of Unit; a Total of 0 is unknown.
	Done, Total int64
	// Unit of Done and Total, for example "Bytes".
	Unit string
	// Description is what it does now, for people.
	Description string
	// Started is when it began, zero if it has not or it is not known.
	Started time.Time
	// Updated is when this was last known, zero for now.
	Updated time.Time
}
