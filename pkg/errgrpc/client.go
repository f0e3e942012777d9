package errgrpc

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// sentinelOf gives back the sentinel a code was made from.
var sentinelOf = map[codes.Code]error{
	codes.NotFound:           ErrNotFound,
	codes.AlreadyExists:      ErrExists,
	codes.FailedPrecondition: ErrPrecondition,
	codes.Aborted:            ErrConflict,
	codes.Unavailable:        ErrUnavailable,
	codes.PermissionDenied:   ErrForbidden,
	codes.Unauthenticated:    ErrUnauthenticated,
	codes.DataLoss:           ErrCorrupt,
	codes.Unimplemented:      ErrUnsupported,
}

// FromStatus turns the error of an RPC into the error it was in the service, as far as the code,
// reason and field violations allow: errors.Is finds the sentinel, errors.As the *FieldError and
// *ReasonError. An error that is no status is returned as it is.
func FromStatus(err error) error {
	st, ok := status.FromError(err)
	if !ok || st.Code() == codes.OK {
		return err
	}
	base := &rpcError{st: st}
	for _, detail := range st.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				base.causes = append(base.causes, &FieldError{Field: v.GetField(), Message: v.GetDescription()})
			}
		}
	}
	if s := sentinelOf[st.Code()]; s != nil {
		base.causes = append(base.causes, s)
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return &ReasonError{Reason: info.GetReason(), Metadata: info.GetMetadata(), Err: base}
		}
	}
	return base
}

// Reason is the reason of an error that came from a service of ours; empty when there is none.
func Reason(err error) string {
	own := new(ReasonError)
	if errors.As(err, &own) || errors.As(FromStatus(err), &own) {
		return own.Reason
	}
	return ""
}

// rpcError is a status that unwraps to what it stood for.
type rpcError struct {
	st     *status.Status
	causes []error
}

// Error is the status message: it was written for people.
func (e *rpcError) Error() string { return e.st.Message() }

// Unwrap gives the sentinel and field errors.
func (e *rpcError) Unwrap() []error { return e.causes }
