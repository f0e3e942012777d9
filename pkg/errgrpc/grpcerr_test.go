package errgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

func errorInfoOf(t *testing.T, st *status.Status) *errdetails.ErrorInfo {
	t.Helper()
	for _, d := range st.Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			require.Equal(t, errgrpc.Domain, i.GetDomain())
			return i
		}
	}
	require.Fail(t, "no ErrorInfo", "%v", st)
	return nil
}

func TestStatus(t *testing.T) {
	backups := schema.GroupResource{Group: "velero.io", Resource: "backups"}
	for name, tc := range map[string]struct {
		err    error
		code   codes.Code
		reason string
	}{
		"sentinel":      {fmt.Errorf("backup %q: %w", "a", errgrpc.ErrNotFound), codes.NotFound, "NOT_FOUND"},
		"precondition":  {errgrpc.ErrPrecondition, codes.FailedPrecondition, "FAILED_PRECONDITION"},
		"conflict":      {errgrpc.ErrConflict, codes.Aborted, "CONFLICT"},
		"own reason":    {errgrpc.WithReason(errgrpc.ErrNotFound, "MANIFEST_NOT_FOUND", nil), codes.NotFound, "MANIFEST_NOT_FOUND"},
		"api not found": {apierrors.NewNotFound(backups, "a"), codes.NotFound, "NOT_FOUND"},
		"api conflict":  {fmt.Errorf("patch: %w", apierrors.NewConflict(backups, "a", errors.New("x"))), codes.Aborted, "CONFLICT"},
		"api throttled": {apierrors.NewTooManyRequestsError("slow"), codes.Unavailable, "API_SERVER_UNAVAILABLE"},
		"deadline":      {fmt.Errorf("list: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		"field":         {errgrpc.Field("spec.ttl", "must not be negative"), codes.InvalidArgument, errgrpc.ReasonInvalidField},
	} {
		t.Run(name, func(t *testing.T) {
			st, internal := errgrpc.Status(tc.err)
			require.False(t, internal)
			require.Equal(t, tc.code, st.Code())
			require.Equal(t, tc.err.Error(), st.Message())
			require.Equal(t, tc.reason, errorInfoOf(t, st).GetReason())
		})
	}
}

// TestAnAPIServerThatIsAwayIsUnavailable: clients repeat a call that is UNAVAILABLE; a refused
// connection was INTERNAL, which they give up on.
func TestAnAPIServerThatIsAwayIsUnavailable(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1/api?token=swordfish", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	for _, err := range []error{refused, fmt.Errorf("list backups: %w", refused), fmt.Errorf("look up: %w", &net.DNSError{Err: "no such host"})} {
		st, withheld := errgrpc.Status(err)
		require.Equal(t, codes.Unavailable, st.Code())
		require.Equal(t, errgrpc.ReasonUnreachable, errorInfoOf(t, st).GetReason())
		require.True(t, withheld, "the log has the text")
		require.NotContains(t, st.Message(), "swordfish")
		require.ErrorIs(t, errgrpc.FromStatus(st.Err()), errgrpc.ErrUnavailable)
	}
	st, _ := errgrpc.Status(&url.Error{Op: "Get", URL: "https://x", Err: context.DeadlineExceeded})
	require.Equal(t, codes.DeadlineExceeded, st.Code(), "the caller's time is over")
	st, _ = errgrpc.Status(&url.Error{Op: "Get", URL: "https://x", Err: context.Canceled})
	require.Equal(t, codes.Canceled, st.Code())
}

func TestUnknownErrorsAreWithheld(t *testing.T) {
	st, internal := errgrpc.Status(errors.New("password is swordfish"))
	require.True(t, internal)
	require.Equal(t, codes.Internal, st.Code())
	require.NotContains(t, st.String(), "swordfish")
	require.Equal(t, errgrpc.ReasonInternal, errorInfoOf(t, st).GetReason())
}

func TestStatusesPass(t *testing.T) {
	want := status.New(codes.ResourceExhausted, "enough")
	got, internal := errgrpc.Status(want.Err())
	require.False(t, internal)
	require.Equal(t, want.String(), got.String())
	ok, _ := errgrpc.Status(nil)
	require.Equal(t, codes.OK, ok.Code())
}

func TestEveryFieldIsNamed(t *testing.T) {
	err := fmt.Errorf("invalid spec: %w", errors.Join(
		errgrpc.Field("spec.ttl", "must not be negative, is %d", -1),
		fmt.Errorf("more: %w", errgrpc.Field("spec.hooks", "not supported")),
	))
	st, _ := errgrpc.Status(err)
	back := errgrpc.FromStatus(st.Err())
	require.Equal(t, err.Error(), back.Error())
	require.Equal(t, errgrpc.ReasonInvalidField, errgrpc.Reason(back))
	field := new(errgrpc.FieldError)
	require.ErrorAs(t, back, &field)
	require.Equal(t, errgrpc.FieldError{Field: "spec.ttl", Message: "must not be negative, is -1"}, *field)
	again, _ := errgrpc.Status(back)
	require.Equal(t, st.Proto().String(), again.Proto().String(), "forwarding an error changes nothing")
}

func TestFromStatusFindsSentinels(t *testing.T) {
	for _, want := range []error{
		errgrpc.ErrNotFound, errgrpc.ErrExists, errgrpc.ErrPrecondition, errgrpc.ErrConflict,
		errgrpc.ErrUnavailable, errgrpc.ErrForbidden, errgrpc.ErrUnauthenticated, errgrpc.ErrCorrupt, errgrpc.ErrUnsupported,
	} {
		st, _ := errgrpc.Status(errgrpc.WithReason(fmt.Errorf("here: %w", want), "SPECIAL", map[string]string{"backup": "a"}))
		back := errgrpc.FromStatus(st.Err())
		require.ErrorIs(t, back, want)
		require.Equal(t, "SPECIAL", errgrpc.Reason(st.Err()))
		reason := new(errgrpc.ReasonError)
		require.ErrorAs(t, back, &reason)
		require.Equal(t, "a", reason.Metadata["backup"])
	}
	plain := errors.New("plain")
	require.Equal(t, plain, errgrpc.FromStatus(plain))
	require.Empty(t, errgrpc.Reason(plain))
	require.NoError(t, errgrpc.FromStatus(nil))
}
