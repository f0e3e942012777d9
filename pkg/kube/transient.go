package kube

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// What the API server and etcd say of an object that is too large for them.
var tooLarge = []string{"request is too large", "trying to send message larger than max"}

// IsRefused reports whether the API server refuses a write for good: admission policy, validation,
// rights or the size of the object. The same write is refused again until a user changes one of
// these.
func IsRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	s := status.Status()
	switch s.Code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return false
	}
	large := slices.ContainsFunc(tooLarge, func(text string) bool { return strings.Contains(s.Message, text) })
	return large || s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError
}

// IsTransient reports whether an error of a request to the API server may go away by itself: the
// network or the server is unreachable or busy, a write met another one, or the server does not know
// the caller. The last is no fact about the object: the token of a Pod is refused from the moment on
// that its Pod object is gone, while its process still runs, and by a server that has just started.
// An answer about the object, such as that it does not exist or may not be read, stays.
func IsTransient(err error) bool {
	var network net.Error // *url.Error is one too
	return errors.As(err, &network) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err) ||
		apierrors.IsUnauthorized(err)
}
