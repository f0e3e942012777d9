package errgrpc

import (
	"context"
	"errors"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reasons sent when the error brings none of its own.
const (
	// ReasonInvalidField comes with at least one field violation.
	ReasonInvalidField = "INVALID_FIELD"
	// ReasonUnreachable: the API server, or an object store, gave no answer. The text, which may
	// hold more of a URL than callers should see, is in the service's log.
	ReasonUnreachable = "UNREACHABLE"
	// ReasonStillWorking: the time of the call is over, but the work goes on, and the same call finds it further.
	ReasonStillWorking = "STILL_WORKING"
	// ReasonInternal is the reason of errors that are only explained in the service's log.
	ReasonInternal = "INTERNAL"
)

type codeRule struct {
	is     func(error) bool
	code   codes.Code
	reason string
}

func matchesSentinel(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// rules are tried in order: our sentinels before the API server's errors before the context's.
var rules = []codeRule{
	{matchesSentinel(ErrNotFound), codes.NotFound, "NOT_FOUND"},
	{matchesSentinel(ErrExists), codes.AlreadyExists, "ALREADY_EXISTS"},
	{matchesSentinel(ErrPrecondition), codes.FailedPrecondition, "FAILED_PRECONDITION"},
	{matchesSentinel(ErrConflict), codes.Aborted, "CONFLICT"},
	{matchesSentinel(ErrUnavailable), codes.Unavailable, "UNAVAILABLE"},
	{matchesSentinel(ErrForbidden), codes.PermissionDenied, "FORBIDDEN"},
	{matchesSentinel(ErrUnauthenticated), codes.Unauthenticated, "UNAUTHENTICATED"},
	{matchesSentinel(ErrCorrupt), codes.DataLoss, "DAMAGED_DATA"},
	{matchesSentinel(ErrUnsupported), codes.Unimplemented, "UNSUPPORTED"},
	{apierrors.IsNotFound, codes.NotFound, "NOT_FOUND"},
	{apierrors.IsAlreadyExists, codes.AlreadyExists, "ALREADY_EXISTS"},
	{apierrors.IsConflict, codes.Aborted, "CONFLICT"},
	{apierrors.IsForbidden, codes.PermissionDenied, "FORBIDDEN"},
	{apierrors.IsInvalid, codes.InvalidArgument, "INVALID_OBJECT"},
	{isApiserverAway, codes.Unavailable, "API_SERVER_UNAVAILABLE"},
	{matchesSentinel(context.DeadlineExceeded), codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
	{matchesSentinel(context.Canceled), codes.Canceled, "CANCELED"},
	{isNetwork, codes.Unavailable, ReasonUnreachable},
}

// isNetwork reports a request that got no answer: client-go returns such errors of the API server
// as they are. It comes after the rules for the context, whose errors look like timeouts of the
// network.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network)
}

func isApiserverAway(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// Status is the status a client gets for err; nil gives OK. An error that already is a gRPC status
// passes unchanged. Internal reports whether the text was withheld, that is, whether the error is
// only explained if the service logs it.
func Status(err error) (st *status.Status, internal bool) {
	if err == nil {
		return status.New(codes.OK, ""), false
	}
	if own, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return own.GRPCStatus(), false
	}
	code, info, violations := classifyError(err)
	message := err.Error()
	withheld := true
	switch {
	case code == codes.Internal:
		message = "internal error"
	case code == codes.Unavailable && info.GetReason() == ReasonUnreachable:
		message = "the API server or an object store cannot be reached"
	default:
		withheld = false
	}
	details := []protoadapt.MessageV1{info}
	if len(violations) > 0 {
		details = append(details, &errdetails.BadRequest{FieldViolations: violations})
	}
	st = status.New(code, message)
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st, withheld
}

func classifyError(err error) (codes.Code, *errdetails.ErrorInfo, []*errdetails.BadRequest_FieldViolation) {
	info := &errdetails.ErrorInfo{Domain: Domain, Reason: ReasonInternal}
	code := codes.Internal
	violations := fieldViolations(err)
	if len(violations) > 0 {
		code, info.Reason = codes.InvalidArgument, ReasonInvalidField
	} else {
		for _, r := range rules {
			if r.is(err) {
				code, info.Reason = r.code, r.reason
				break
			}
		}
	}
	if own := new(ReasonError); errors.As(err, &own) {
		info.Reason, info.Metadata = own.Reason, own.Metadata
	}
	return code, info, violations
}

// fieldViolations collects the FieldErrors in err's tree, in order.
func fieldViolations(err error) []*errdetails.BadRequest_FieldViolation {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand, to find every FieldError and not only the first
	case *FieldError:
		return []*errdetails.BadRequest_FieldViolation{{Field: e.Field, Description: e.Message}}
	case interface{ Unwrap() []error }:
		var all []*errdetails.BadRequest_FieldViolation
		for _, inner := range e.Unwrap() {
			all = append(all, fieldViolations(inner)...)
		}
		return all
	case interface{ Unwrap() error }:
		return fieldViolations(e.Unwrap())
	}
	return nil
}
