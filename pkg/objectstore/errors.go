package objectstore

import "errors"

// What a caller can do about a failure of a store. Implementations wrap these with the key and the
// cause.
var (
	// ErrNotFound means that the object does not exist.
	ErrNotFound = errors.New("object not found")
	// ErrExists means that a create-if-absent found an object.
	ErrExists = errors.New("object already exists")
	// ErrReadOnly means that the store refuses writes: by access mode, permissions or file system.
	ErrReadOnly = errors.New("object store is read-only")
	// ErrInvalidKey means that a key or prefix cannot name an object; retrying is pointless.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrInvalidRange means a negative offset or a source range outside its object.
	ErrInvalidRange = errors.New("invalid byte range")
	// ErrSize means that a reader held more or fewer bytes than its caller said.
	ErrSize = errors.New("content length differs from the announced size")
	// ErrNoBucket means that the bucket itself does not exist.
	ErrNoBucket = errors.New("bucket does not exist")
	// ErrAccess means that the store refused the credentials.
	ErrAccess = errors.New("access to the object store denied")
	// ErrUnsigned means that the store cannot make URLs that need no credentials.
	ErrUnsigned = errors.New("the object store signs no URLs")
)
