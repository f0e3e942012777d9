package pluginstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// errVanished means that another process deletes what is being written. It is worth another try.
var errVanished = errors.New("the object was written and is not there")

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return writeSized(ctx, "put", key, r, size, s.putObject)
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return writeSized(ctx, "create", key, r, size, s.createObject)
}

// writeSized writes what has the size that it is said to have.
func writeSized[T any](ctx context.Context, op, key string, r io.ReadSeeker, size int64,
	write func(ctx context.Context, op, key string, r io.Reader) (T, error),
) error {
	if err := checkCall(ctx, key); err != nil {
		return err
	}
	if _, err := objectstore.CheckSize(r, size); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	_, err := write(ctx, op, key, &exact{r: r, left: size})
	return err
}

// createObject writes where nothing is, and makes sure that it is what others read then.
func (s *Store) createObject(ctx context.Context, op, key string, r io.Reader) (objectstore.Info, error) {
	release, err := s.config.Locks.acquireName(ctx, s.config.Plugin.Name()+"\x00"+s.config.Bucket+"\x00"+key)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer release()
	there, err := s.objectExists(ctx, op, key)
	if err == nil && there {
		err = fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
	}
	if err != nil {
		return objectstore.Info{}, err
	}
	written, err := s.putObject(ctx, op, key, r)
	if err != nil {
		return objectstore.Info{}, err
	}
	read, err := s.readBack(ctx, op, key)
	if err == nil && read != written {
		err = fmt.Errorf("%s %s: %w: another writer was there at the same time", op, key, objectstore.ErrExists)
	}
	return written.objectInfo(key), err
}

func (s *Store) readBack(ctx context.Context, op, key string) (contentDigest, error) {
	rc, err := s.openObject(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return contentDigest{}, fmt.Errorf("%s %s: %w", op, key, errVanished)
	}
	if err != nil {
		return contentDigest{}, fmt.Errorf("%s %s: read back: %w", op, key, err)
	}
	defer func() { _ = rc.Close() }()
	m := newMeasure(rc)
	if _, err := io.Copy(io.Discard, m); err != nil {
		return contentDigest{}, fmt.Errorf("%s %s: read back: %w", op, key, err)
	}
	return m.contentSum(), nil
}

// putObject sends r, and returns its size and hash.
func (s *Store) putObject(ctx context.Context, op, key string, r io.Reader) (contentDigest, error) {
	m := newMeasure(r)
	body, err := encodeEmpty(m)
	if err == nil {
		s.spool.forgetObject(key)
		err = s.config.Plugin.Put(ctx, s.config.Bucket, key, body)
		s.spool.forgetObject(key)
	}
	if err != nil {
		return contentDigest{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	return m.contentSum(), nil
}

// Delete implements objectstore.Writer.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkCall(ctx, key); err != nil {
		return err
	}
	s.spool.forgetObject(key)
	err := s.config.Plugin.Delete(ctx, s.config.Bucket, key)
	s.spool.forgetObject(key)
	if err == nil {
		return nil
	}
	var remote *pluginhost.RemoteError
	if !errors.As(err, &remote) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if err = s.unlessAbsent(ctx, "delete", key, err); errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	return err
}

// exact reads as many bytes as were announced.
type exact struct {
	r    io.Reader
	left int64
}

func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		err = fmt.Errorf("%w: %d bytes are missing", objectstore.ErrSize, e.left)
	}
	return n, err
}

// contentDigest identifies content.
type contentDigest struct {
	size   int64
	sha256 [sha256.Size]byte
}

func (s contentDigest) objectInfo(key string) objectstore.Info {
	return objectstore.Info{Key: key, Size: s.size, ETag: hex.EncodeToString(s.sha256[:])}
}

// measuringReader sums up what is read through it.
type measuringReader struct {
	r    io.Reader
	size int64
	hash hash.Hash
}

func newMeasure(r io.Reader) *measuringReader { return &measuringReader{r: r, hash: sha256.New()} }

func (m *measuringReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.size += int64(n)
	_, _ = m.hash.Write(p[:n]) // documented never to fail
	return n, err
}

func (m *measuringReader) contentSum() contentDigest {
	s := contentDigest{size: m.size}
	m.hash.Sum(s.sha256[:0])
	return s
}
