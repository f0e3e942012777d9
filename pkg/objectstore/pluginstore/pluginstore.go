// Package pluginstore keeps objects in a bucket behind an ObjectStore plugin.
//
// Velero's protocol can put, get, list and delete whole objects and ask whether one exists, and
// that is all. The rest of what an [objectstore.Store] promises is made here, at its price:
//
//   - Creation is an exists-check, a write and a comparison of what can be read back. It is atomic within one process, which
//     [Locks] sees to; two processes that create one key at the same moment may both succeed. So
//     such a bucket must not be shared by two clusters, and within one the claim on a job has to keep others away.
//   - Compose streams its sources through this process, in bounded memory.
//   - Stat reads the object, and ranges are cut from a copy of it on the local disk.
//   - An empty object is stored as a short text that stands for it, because the protocol has no message for an empty one.
//   - Lists tell keys alone, sorted here; a bucket's list is one message. Times are unknown.
//   - Why a plugin refuses is known from nothing but its words, so ErrNoBucket, ErrAccess and ErrReadOnly never come.
//     An object that cannot be read and does not exist is ErrNotFound.
package pluginstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// defaultSpoolBytes is what copies of objects may take on the disk, unless configured: enough for
// the tarball of some million objects.
const defaultSpoolBytes = 8 << 30

// Config is what a Store needs.
type Config struct {
	// Plugin is the provider, configured for the location.
	Plugin action.ObjectStore
	// Bucket is what calls name as the bucket.
	Bucket string
	// Dir is where copies of objects are put that are read by ranges. They have no names and vanish
	// with the process.
	Dir string
	// SpoolBytes bounds those copies; of larger objects each range is read from the start. 0 means
	// 8 GiB.
	SpoolBytes int64
	// Locks is shared by the stores of a process.
	Locks *Locks
	// End is called by Close, after the last call.
	End func() error
}

// Store is one bucket. Calls are bounded by the plugin's limits and by their context, and are not
// repeated; their errors wrap a *pluginhost.Error. Safe for concurrent use.
type Store struct {
	config Config
	spool  *objectSpool
}

var (
	_ objectstore.Store   = (*Store)(nil)
	_ objectstore.Signer  = (*Store)(nil)
	_ objectstore.Exister = (*Store)(nil)
)

// New returns the store; nothing is asked yet.
func New(c Config) *Store {
	if c.SpoolBytes == 0 {
		c.SpoolBytes = defaultSpoolBytes
	}
	s := &Store{config: c}
	s.spool = &objectSpool{open: s.openObject, dir: c.Dir, limit: c.SpoolBytes, flights: map[string]*flight{}}
	return s
}

// Close drops the copies and ends the plugin's session.
func (s *Store) Close() error {
	s.spool.close()
	if s.config.End == nil {
		return nil
	}
	return s.config.End()
}

// Get implements objectstore.Reader.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkCall(ctx, key); err != nil {
		return nil, err
	}
	return s.openObject(ctx, key)
}

// GetRange implements objectstore.Reader. Ranges of one object that are read through one Store are
// of one version of it.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := checkCall(ctx, key); err != nil {
		return nil, err
	}
	if err := objectstore.CheckRange(key, off); err != nil {
		return nil, err
	}
	held, ok := s.spool.lookupCopy(key)
	switch {
	case ok:
	case n == 0:
		return s.emptyRange(ctx, key)
	case off == 0: // the start of a stream, and for a whole object all of it
		return s.readTail(ctx, key, 0, n)
	default:
		var err error
		if held, err = s.spool.fetchCopy(ctx, key); err != nil {
			return nil, err
		}
	}
	if held.file == nil { // larger than the spool
		held.releaseUser()
		return s.readTail(ctx, key, off, n)
	}
	return held.sectionReader(off, n), nil
}

// emptyRange is an empty range of an object that exists.
func (s *Store) emptyRange(ctx context.Context, key string) (io.ReadCloser, error) {
	there, err := s.objectExists(ctx, "get", key)
	if err == nil && !there {
		err = fmt.Errorf("get %s: %w", key, objectstore.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return io.NopCloser(strings.NewReader("")), nil
}

// readTail reads a range by reading what comes before it too.
func (s *Store) readTail(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	rc, err := s.openObject(ctx, key)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, rc, off); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("get %s: %w", key, err), rc.Close())
	}
	if n < 0 {
		return rc, nil
	}
	return body{io.LimitReader(rc, n), rc}, nil
}

// body reads from one thing and closes another.
type body struct {
	io.Reader
	io.Closer
}

// openObject reads an object as it is now.
func (s *Store) openObject(ctx context.Context, key string) (io.ReadCloser, error) {
	rc, err := s.config.Plugin.Get(ctx, s.config.Bucket, key)
	if err == nil {
		rc, err = decodeEmpty(rc)
	}
	if err != nil {
		return nil, s.unlessAbsent(ctx, "get", key, err)
	}
	return rc, nil
}

// unlessAbsent turns the failure of a call about an object that is not there into ErrNotFound. Only
// what the plugin answered with is looked into: one that does not answer is not asked again.
func (s *Store) unlessAbsent(ctx context.Context, op, key string, err error) error {
	failed := fmt.Errorf("%s %s: %w", op, key, err)
	var remote *pluginhost.RemoteError
	if !errors.As(err, &remote) {
		return failed
	}
	there, asked := s.objectExists(ctx, op, key)
	if asked == nil && !there {
		return fmt.Errorf("%s %s: %w: %w", op, key, objectstore.ErrNotFound, err)
	}
	return failed
}

// Exists implements objectstore.Exister, with one call.
func (s *Store) Exists(ctx context.Context, key string) (bool, error) {
	if err := checkCall(ctx, key); err != nil {
		return false, err
	}
	return s.objectExists(ctx, "stat", key)
}

func (s *Store) objectExists(ctx context.Context, op, key string) (bool, error) {
	there, err := s.config.Plugin.Exists(ctx, s.config.Bucket, key)
	if err != nil {
		return false, fmt.Errorf("%s %s: %w", op, key, err)
	}
	return there, nil
}

// Stat implements objectstore.Reader by reading the object. ETag is made of the content, ModTime is
// unknown.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	if err := checkCall(ctx, key); err != nil {
		return objectstore.Info{}, err
	}
	s.spool.forgetObject(key) // the object may have changed since the last range
	held, err := s.spool.fetchCopy(ctx, key)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer held.releaseUser()
	return held.sum.objectInfo(key), nil
}

// checkCall refuses what is not worth asking the plugin.
func checkCall(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	return context.Cause(ctx)
}
