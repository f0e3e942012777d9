package job

import (
	"errors"
	"time"
)

// lastWriteLimit bounds a write that ends the work of this process on a backup.
const lastWriteLimit = 5 * time.Second

// unreachableError is a bucket that did not answer for as long as it is waited for, and may hold
// what the backup stored or how it ended.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// cancelledPatience is how long a cancelled backup waits for a bucket that is away.
const cancelledPatience = 30 * time.Second

// errBucketAway ends the calls of a bucket that a cancelled backup does not wait for any longer.
var errBucketAway = &unreachableError{errors.New("it did not answer in time")}

// bucketPatience is how long a bucket is waited for that is away.
func (a *attempt) bucketPatience() time.Duration {
	if a.held.Cancelled() != nil {
		return min(cancelledPatience, a.StorePatience)
	}
	return a.StorePatience
}
