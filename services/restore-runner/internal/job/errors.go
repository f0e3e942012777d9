package job

import (
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// errDeleted ends an attempt at a restore that is being deleted: it is removed, not released.
var errDeleted = fmt.Errorf("%w: the restore is being deleted", claim.ErrLost)

// fatalError ends a restore as Failed; its text is the failureReason.
type fatalError struct{ err error }

// Error implements error.
func (e *fatalError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *fatalError) Unwrap() error { return e.err }

func fatalErrorf(format string, args ...any) error { return &fatalError{fmt.Errorf(format, args...)} }

// isFatal reports an error that ends the restore as Failed, a request to cancel apart.
func isFatal(err error) bool {
	var fatal *fatalError
	return errors.As(err, &fatal) || !errors.Is(err, claim.ErrLost) && isStoreFailure(err)
}

// isStoreFailure reports an error of the bucket, of what is in it, or of the work directory, that no
// other attempt changes: the bucket was unreachable for StorePatience, refuses the call, or answered
// with something of no use; the work directory takes nothing more.
func isStoreFailure(err error) bool {
	var spent *retry.BudgetError
	if errors.As(err, &spent) || retrystore.Refused(err) {
		return true
	}
	for _, target := range []error{objectstore.ErrNotFound, journal.ErrCorrupt, operation.ErrDamaged, journal.ErrDocumentTooLarge, outcome.ErrFormat, outcome.ErrWorkDir} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// isDamaged reports that a backup cannot be read, however often it is tried.
func isDamaged(err error) bool {
	for _, target := range []error{tarball.ErrCorrupt, tarball.ErrTooLarge, tarball.ErrPath, tarball.ErrMismatch, manifest.ErrCorrupt} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// codedError gives an error of a dry run the code that callers see.
func codedError(err error) error {
	var damage *damageError
	switch {
	case errors.As(err, &damage):
		return fmt.Errorf("%w: %w", errgrpc.ErrCorrupt, err)
	case isFatal(err):
		return fmt.Errorf("%w: %w", errgrpc.ErrPrecondition, err)
	}
	return err
}

// isTransientServerError reports that a failure of the API server, or of what is reached over the network, may
// go away by itself.
func isTransientServerError(err error) bool {
	var fatal *fatalError
	return !errors.As(err, &fatal) && kube.IsTransient(err)
}

// unlessAway makes an error fatal, unless it means that the API server is temporarily unavailable.
func unlessAway(err error, what string) error {
	var status apierrors.APIStatus
	var network net.Error // *url.Error is one too
	if apierrors.IsNotFound(err) || (!errors.As(err, &status) && !errors.As(err, &network)) {
		return fatalErrorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// cancelRequestOf returns the request to cancel that an error is about, nil if it is none.
func cancelRequestOf(err error) *mark.CancelError {
	var request *mark.CancelError
	if errors.As(err, &request) {
		return request
	}
	return nil
}
