package s3store

import (
	"errors"
	"fmt"
	"net/http"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// opError translates what the server said and names the operation and key. The SDK's errors hold no
// credentials.
func opError(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if kind := sentinelFor(err); kind != nil {
		return fmt.Errorf("%s %s: %w: %w", op, key, kind, err)
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}

func sentinelFor(err error) error {
	c := errorCode(err)
	switch c {
	case "NoSuchKey", "NotFound":
		return objectstore.ErrNotFound
	case "NoSuchBucket":
		return objectstore.ErrNoBucket
	case "PreconditionFailed":
		return objectstore.ErrExists
	case "InvalidRange":
		return objectstore.ErrInvalidRange
	case "KeyTooLongError", "KeyTooLong":
		return objectstore.ErrInvalidKey
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "Forbidden",
		"XAdminUserNotFound": // versitygw
		return objectstore.ErrAccess
	}
	if c != "" && httpStatus(err) == http.StatusNotFound {
		return nil // something else is missing; taking it for the object would make a delete look done
	}
	switch httpStatus(err) {
	case http.StatusNotFound:
		return objectstore.ErrNotFound
	case http.StatusPreconditionFailed:
		return objectstore.ErrExists
	case http.StatusForbidden, http.StatusUnauthorized:
		return objectstore.ErrAccess
	}
	return nil
}

// errorCode is the S3 error code, "" when the answer had none.
func errorCode(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// httpStatus is the HTTP status of the answer, 0 when there was none.
func httpStatus(err error) int {
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		return resp.HTTPStatusCode()
	}
	return 0
}
