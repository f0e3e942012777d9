package retrystore

import (
	"errors"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// errorClass is what an error of a store means for another attempt.
type errorClass int

const (
	// transient errors may be gone at the next attempt.
	transient errorClass = iota
	// answered calls have their result: the object is there, or is not.
	answered
	// refused calls fail until a user changes bucket, credentials or request.
	refused
)

// refusals are the errors of class refused.
var refusals = []error{
	objectstore.ErrReadOnly, objectstore.ErrInvalidKey, objectstore.ErrInvalidRange, objectstore.ErrSize,
	objectstore.ErrNoBucket, objectstore.ErrAccess,
}

// classifyError is the only place that decides which errors of a store are retried.
func classifyError(err error) errorClass {
	switch {
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, objectstore.ErrExists):
		return answered
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return refused
	}
	return transient
}

// Refused reports whether an error of a store means that it refuses the call: neither waiting nor
// another process changes that.
func Refused(err error) bool { return classifyError(err) == refused }
