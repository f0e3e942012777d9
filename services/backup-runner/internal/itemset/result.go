package itemset

// Result is what became of an object.
type Result uint32

// The results.
const (
	// Unknown objects were never met.
	Unknown Result = iota
	// Stored objects are in a part.
	Stored
	// Failed objects have an error in the log.
	Failed
	// LeftOut objects were kept out by an action.
	LeftOut
	// Absent objects do not exist.
	Absent
	// Unwanted objects exist, and the filters do not want them.
	Unwanted
	// Busy objects are being worked on.
	Busy
	// Waiting objects are spooled until their actions run.
	Waiting
)

// Waits reports whether Begin gave the object away.
func (f Result) Waits(again bool) bool {
	return f == Waiting || f == Unknown || (again && f == Unwanted)
}

// IsKnown reports whether the object is the backup's business already: it was processed, or will be.
func (f Result) IsKnown() bool {
	return f == Stored || f == Failed || f == LeftOut || f == Waiting
}
