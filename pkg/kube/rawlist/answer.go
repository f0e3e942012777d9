package rawlist

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// retryableError is an attempt that may be repeated.
type retryableError struct {
	err     error
	broken  bool          // the server answers, but wrongly: few tries
	smaller bool          // a smaller page may help
	behind  bool          // the server has not seen the revision yet
	after   time.Duration // the server asked to wait this long
}

func (f *retryableError) Error() string { return f.err.Error() }
func (f *retryableError) Unwrap() error { return f.err }

// responseError turns a response other than 200 into an error.
func responseError(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what can be read of the message is enough
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		status = metav1.Status{}
	}
	err := &StatusError{Code: resp.StatusCode, Reason: string(status.Reason), Message: status.Message}
	switch code := resp.StatusCode; {
	case code == http.StatusGone || status.Reason == metav1.StatusReasonExpired:
		return &ExpiredError{Continue: status.Continue, Message: status.Message}
	case tooLargeRevision(&status):
		return &retryableError{err: err, behind: true, after: retryAfter(resp)}
	case code == http.StatusTooManyRequests:
		return &retryableError{err: err, after: retryAfter(resp)}
	case code == http.StatusGatewayTimeout || code == http.StatusRequestTimeout:
		return &retryableError{err: err, smaller: true, after: retryAfter(resp)}
	case code == http.StatusBadGateway || code == http.StatusServiceUnavailable || code == http.StatusUnauthorized: // see kube.IsTransient
		return &retryableError{err: err, after: retryAfter(resp)}
	case code >= http.StatusInternalServerError:
		return &retryableError{err: err, broken: true, smaller: true, after: retryAfter(resp)}
	}
	return err
}

// tooLargeRevision is true while a server behind the others has not yet seen the revision asked
// for; it catches up.
func tooLargeRevision(status *metav1.Status) bool {
	return status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeResourceVersionTooLarge
	})
}

// maxRetryAfter bounds the wait a server may ask for.
const maxRetryAfter = 30 * time.Second

func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}
