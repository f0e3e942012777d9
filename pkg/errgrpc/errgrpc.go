// Package errgrpc turns Go errors into gRPC statuses at the edge of a service, and statuses back
// into errors in clients.
//
// Inside a service errors are plain Go errors that wrap one of the sentinels here, a [FieldError],
// or an error of the Kubernetes API. [Status] maps them to a code and a google.rpc.ErrorInfo with a
// stable reason (AIP-193); anything else is INTERNAL, and its text stays in the service's log.
package errgrpc

import (
	"errors"
	"fmt"
)

// Domain is the ErrorInfo domain of every reason of ours.
const Domain = "holdfast.io"

// Sentinels. Wrap one (`fmt.Errorf("backup %q: %w", name, errgrpc.ErrNotFound)`) to choose the code
// and reason.
var (
	// ErrNotFound: the object does not exist (NOT_FOUND).
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken (ALREADY_EXISTS).
	ErrExists = errors.New("already exists")
	// ErrPrecondition: the object is not in a state that allows this; retrying is useless until it
	// changes (FAILED_PRECONDITION).
	ErrPrecondition = errors.New("not possible now")
	// ErrConflict: another client changed or replaced the object; read again and retry (ABORTED).
	ErrConflict = errors.New("changed by someone else")
	// ErrUnavailable: something this service needs is away; retry the call (UNAVAILABLE).
	ErrUnavailable = errors.New("unavailable")
	// ErrForbidden: the caller, or the service itself, lacks the right (PERMISSION_DENIED).
	ErrForbidden = errors.New("forbidden")
	// ErrUnauthenticated: the caller did not prove who they are (UNAUTHENTICATED).
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrCorrupt: stored data is damaged (DATA_LOSS).
	ErrCorrupt = errors.New("damaged data")
	// ErrUnsupported: what the call is about can never do this (UNIMPLEMENTED).
	ErrUnsupported = errors.New("not supported")
)

// FieldError is what is wrong with one field of a request, object or configuration
// (INVALID_ARGUMENT).
type FieldError struct {
	// Field is the path of the field as the caller wrote it, for example
	// "spec.includedNamespaces[0]".
	Field string
	// Message is what is wrong, without the path.
	Message string
}

// Error is "field: message".
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

// Field returns a FieldError with a formatted message.
func Field(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// ReasonError gives an error a reason of its own, finer than its sentinel's.
type ReasonError struct {
	// Reason is UPPER_SNAKE_CASE and stable: clients may depend on it.
	Reason string
	// Metadata are further facts for machines; keys are lowerCamelCase.
	Metadata map[string]string
	// Err is what happened; it decides the code.
	Err error
}

// Error is the text of the wrapped error.
func (e *ReasonError) Error() string { return e.Err.Error() }

// Unwrap gives the wrapped error.
func (e *ReasonError) Unwrap() error { return e.Err }

// WithReason wraps err with a reason of its own.
func WithReason(err error, reason string, metadata map[string]string) error {
	return &ReasonError{Reason: reason, Metadata: metadata, Err: err}
}
