package kube

import (
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// IsTransient reports whether an error of a request to the API server may go away by itself: the network or the server is away or busy, or a write met
// another one. What the server says about the object, such as that it does not exist or may not be read, stays.
func IsTransient(err error) bool {
	var network net.Error // *url.Error is one too
	return errors.As(err, &network) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err)
}
