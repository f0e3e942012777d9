package validate

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Priority is how urgent a backup is; a greater one goes first. The zero value is PriorityNormal.
type Priority int

// The classes.
const (
	PriorityLow    Priority = -1
	PriorityNormal Priority = 0
	PriorityHigh   Priority = 1
)

// String returns the class as the annotation spells it.
func (c Priority) String() string {
	switch c {
	case PriorityLow:
		return "low"
	case PriorityNormal:
		return "normal"
	case PriorityHigh:
		return "high"
	}
	return fmt.Sprintf("Priority(%d)", int(c))
}

// PriorityOf reads the class from annotation holdfast.io/priority. Without it the class is PriorityNormal; with
// another value than high, normal and low it is PriorityNormal and an error.
func PriorityOf(annotations map[string]string) (Priority, error) {
	switch text, set := annotations[holdfast.AnnotationPriority]; {
	case !set, text == "normal":
		return PriorityNormal, nil
	case text == "high":
		return PriorityHigh, nil
	case text == "low":
		return PriorityLow, nil
	default:
		return PriorityNormal, fmt.Errorf("%q is none of high, normal and low", text)
	}
}

// AgedClass is the class a job has come to by waiting: one higher for every full period of ageing, up
// to PriorityHigh. With a period of 0 no job ages.
func (c Priority) AgedClass(waited, ageing time.Duration) Priority {
	if ageing <= 0 || waited < ageing {
		return c
	}
	steps := waited / ageing
	if steps >= time.Duration(PriorityHigh-c) {
		return PriorityHigh
	}
	return c + Priority(steps)
}
