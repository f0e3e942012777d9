package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/plugin/wire/velero"
)

// Why a call failed, wherever it was not the plugin that answered with an error.
var (
	// ErrUnknown means that no usable plugin of that kind and name is registered.
	ErrUnknown = errors.New("no such plugin")
	// ErrStart means that the process did not come up.
	ErrStart = errors.New("plugin process did not start")
	// ErrCrashed means that the process died during the call, or broke the connection.
	ErrCrashed = errors.New("plugin process died")
	// ErrTimeout means that the call was not answered in time. The process is replaced, but for one
	// that jobs share.
	ErrTimeout = errors.New("no answer in time")
	// ErrStopped means that the process died too often in a row and is not started again for a
	// while.
	ErrStopped = errors.New("plugin is stopped because it keeps dying")
	// ErrPanicked means that the plugin panicked and its process survived.
	ErrPanicked = errors.New("plugin panicked")
	// ErrTooLarge means that a message was larger than one of the sides accepts.
	ErrTooLarge = errors.New("message too large")
	// ErrMalformed means that the answer breaks the protocol.
	ErrMalformed = errors.New("malformed answer")
	// ErrNoKey means that a call that begins an operation has no idempotency key.
	ErrNoKey = errors.New("no idempotency key")
	// ErrUnserved means that the plugin is registered under a kind that this version never calls.
	ErrUnserved = errors.New("this version calls no plugin of this kind")
	// ErrClosed means that the session was closed, or the Operations.
	ErrClosed = errors.New("plugin session is closed")
)

// Error is a failed call.
type Error struct {
	// Plugin is the registered name, Method the protocol's.
	Plugin, Method string
	// Object is what the call was about, "Pod a/b"; empty where it was about none.
	Object string
	// Sent reports that the plugin may have seen the call; otherwise it certainly has not.
	Sent bool
	// Err is one of this package's errors, a *RemoteError, or the cause for which the caller's
	// context ended.
	Err error
}

// Error names plugin, method and object.
func (e *Error) Error() string {
	if e.Object == "" {
		return fmt.Sprintf("plugin %s: %s: %v", e.Plugin, e.Method, e.Err)
	}
	return fmt.Sprintf("plugin %s: %s of %s: %v", e.Plugin, e.Method, e.Object, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// RemoteError is an error that the plugin answered with.
type RemoteError struct {
	// Code is Unknown for plain Go errors of Velero's framework.
	Code codes.Code
	// Reason is of plugins made with Holdfast's SDK: ReasonNoOperation or empty.
	Reason string
	// Message is the plugin's text, cut at 4 KiB.
	Message string
	// Function, File and Line are where in the plugin the error arose, if it reports that.
	Function, File string
	Line           int32
}

// Error returns the plugin's text.
func (e *RemoteError) Error() string { return e.Message }

// Is makes the answer that there is no such operation action.ErrUnknownOperation.
func (e *RemoteError) Is(target error) bool {
	return target == action.ErrUnknownOperation && e.Code == codes.NotFound && e.Reason == ReasonNoOperation
}

// Values of an ErrorInfo of the SDK, see async.proto.
const (
	// ReasonNoOperation means that the action does not know the operation. NotFound alone may come
	// from anywhere.
	ReasonNoOperation = "OPERATION_UNKNOWN"
	reasonDomain      = "holdfast.io"
)

const maxRemoteMessage = 4 << 10

// panicPrefix starts the message of a panic that Velero's framework caught, with code Aborted.
const panicPrefix = "plugin panicked:"

// convertStatus makes an error of the status a call came back with; the process is known to live.
func convertStatus(err error) error {
	s := status.Convert(err)
	message := s.Message()
	switch {
	case s.Code() == codes.Aborted && strings.HasPrefix(message, panicPrefix):
		return fmt.Errorf("%w: %s", ErrPanicked, clipText(strings.TrimSpace(strings.TrimPrefix(message, panicPrefix))))
	case s.Code() == codes.ResourceExhausted && strings.Contains(message, "larger than max"),
		s.Code() == codes.Internal && strings.HasPrefix(message, "grpc: ") && strings.HasSuffix(message, errDecoded.Error()):
		return fmt.Errorf("%w: %s", ErrTooLarge, clipText(message))
	case s.Code() == codes.Internal && strings.HasPrefix(message, "grpc: "):
		return fmt.Errorf("%w: %s", ErrMalformed, clipText(message))
	}
	remote := &RemoteError{Code: s.Code(), Message: clipText(message)}
	if remote.Message == "" {
		remote.Message = "plugin answered with status " + s.Code().String()
	}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *velero.Stack:
			if len(d.GetFrames()) > 0 {
				frame := d.GetFrames()[0]
				remote.Function, remote.File, remote.Line = clipText(frame.GetFunction()), clipText(frame.GetFile()), frame.GetLine()
			}
		case *errdetails.ErrorInfo:
			if d.GetDomain() == reasonDomain {
				remote.Reason = clipText(d.GetReason())
			}
		}
	}
	return remote
}

// clipText bounds what a plugin's text may take in logs and results.
func clipText(text string) string {
	if len(text) <= maxRemoteMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxRemoteMessage], "") + "…"
}

// contextCause returns why ctx ended.
func contextCause(ctx context.Context) error { return context.Cause(ctx) }
