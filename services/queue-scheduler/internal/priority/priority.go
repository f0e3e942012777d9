// Package priority orders the classes of backups that wait, which waiting raises.
package priority

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Class is how urgent a backup is; a greater one goes first. The zero value is Normal.
type Class int

// The classes.
const (
	Low    Class = -1
	Normal Class = 0
	High   Class = 1
)

// String returns the class as the annotation spells it.
func (c Class) String() string {
	switch c {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// ClassOf reads the class from annotation holdfast.io/priority. Without it the class is Normal; with
// another value than high, normal and low it is Normal and an error.
func ClassOf(annotations map[string]string) (Class, error) {
	switch text, set := annotations[holdfast.AnnotationPriority]; {
	case !set, text == "normal":
		return Normal, nil
	case text == "high":
		return High, nil
	case text == "low":
		return Low, nil
	default:
		return Normal, fmt.Errorf("%q is none of high, normal and low", text)
	}
}

// AgedClass is the class a job has come to by waiting: one higher for every full period of ageing, up
// to High. With a period of 0 no job ages.
func (c Class) AgedClass(waited, ageing time.Duration) Class {
	if ageing <= 0 || waited < ageing {
		return c
	}
	steps := waited / ageing
	if steps >= time.Duration(High-c) {
		return High
	}
	return c + Class(steps)
}
