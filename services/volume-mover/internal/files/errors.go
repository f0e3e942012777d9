package files

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	volumev1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
)

// exitBase is added to a code of gRPC to make the exit code of a mover.
const exitBase = 64

// ErrorPrefix begins the last line that a mover that failed says on stderr.
const ErrorPrefix = "error: "

// classifyError gives an error of a repository its place among those of a service.
func classifyError(v *volumev1.Volume, err error) error {
	var store *repository.StoreError
	var field *errgrpc.FieldError
	kind := errgrpc.ErrPrecondition
	switch {
	case err == nil, errors.As(err, &field), errors.Is(err, errgrpc.ErrNotFound), errors.Is(err, errWrite):
		return err
	case errors.As(err, &store):
		kind = errgrpc.ErrUnavailable
	case errors.Is(err, repository.ErrNoSnapshot), errors.Is(err, repository.ErrAbsent):
		kind = errgrpc.ErrNotFound
	case errors.Is(err, repository.ErrDamaged):
		kind = errgrpc.ErrCorrupt
	}
	return fmt.Errorf("repository of namespace %s: %w: %w", v.GetNamespace(), err, kind)
}

// ExitCode returns the exit code of a mover that failed with an error.
func ExitCode(err error) int {
	st, _ := errgrpc.Status(err)
	return exitBase + int(st.Code())
}

// DecodeExit returns the error of a mover that ended with an exit code and what it said on stderr; nil if the code is
// none of ExitCode.
func DecodeExit(code int, stderr string) error {
	i := strings.LastIndex(stderr, ErrorPrefix)
	if code <= exitBase || code > exitBase+int(codes.Unauthenticated) || i < 0 {
		return nil
	}
	return status.Error(codes.Code(code-exitBase), stderr[i+len(ErrorPrefix):]) //nolint:gosec // in bounds
}
