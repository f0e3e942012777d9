// Package memstore is an object store in memory for tests: the behaviour of the real ones, and
// faults on demand.
package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Store keeps objects in a map. The zero value is not usable; see New.
type Store struct {
	// Clock stamps objects; the real clock unless replaced before the first write.
	Clock clock.PassiveClock

	mu      sync.Mutex
	objects map[string]storedObject
	writes  int64
	fault   Fault
	calls   map[Op]int
	uploads []objectstore.Upload
}

type storedObject struct {
	info objectstore.Info
	data []byte // never changed in place
}

var (
	_ objectstore.Store         = (*Store)(nil)
	_ objectstore.UploadSweeper = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	return &Store{Clock: clock.RealClock{}, objects: map[string]storedObject{}, calls: map[Op]int{}}
}

// Close implements objectstore.Store; the content stays.
func (s *Store) Close() error { return nil }

// Get implements objectstore.Reader.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.GetRange(ctx, key, 0, -1)
}

// GetRange implements objectstore.Reader.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := objectstore.CheckRange(key, off); err != nil {
		return nil, err
	}
	o, err := s.readObject(ctx, OpGet, key)
	if err != nil {
		return nil, err
	}
	off = min(off, o.info.Size)
	if left := o.info.Size - off; n < 0 || n > left {
		n = left
	}
	return &reader{ctx: ctx, store: s, key: key, r: bytes.NewReader(o.data[off : off+n])}, nil
}

// Stat implements objectstore.Reader.
func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	o, err := s.readObject(ctx, OpStat, key)
	return o.info, err
}

// List implements objectstore.Reader.
func (s *Store) List(ctx context.Context, prefix string, fn func(objectstore.Info) error) error {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return err
	}
	if err := s.enterCall(ctx, OpList, prefix); err != nil {
		return err
	}
	for _, i := range s.listInfos(prefix) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(i); err != nil {
			if errors.Is(err, fs.SkipAll) {
				return nil
			}
			return err
		}
	}
	return nil
}

// ListPrefixes implements objectstore.Reader.
func (s *Store) ListPrefixes(ctx context.Context, prefix string) ([]string, error) {
	if err := objectstore.CheckDir(prefix); err != nil {
		return nil, err
	}
	if err := s.enterCall(ctx, OpList, prefix); err != nil {
		return nil, err
	}
	var dirs []string
	for _, i := range s.listInfos(prefix) {
		name, _, ok := strings.Cut(strings.TrimPrefix(i.Key, prefix), "/")
		if ok && (len(dirs) == 0 || dirs[len(dirs)-1] != name+"/") {
			dirs = append(dirs, name+"/")
		}
	}
	return dirs, nil
}

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	_, err := s.writeObject(ctx, OpPut, key, true, func() ([]byte, error) { return readExact(r, size) })
	return err
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	_, err := s.writeObject(ctx, OpCreate, key, false, func() ([]byte, error) { return readExact(r, size) })
	return err
}

// Compose implements objectstore.Writer.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	return s.writeObject(ctx, OpCompose, key, false, func() ([]byte, error) { return s.concatSources(src) })
}

// Delete implements objectstore.Writer.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	if err := s.enterCall(ctx, OpDelete, key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}

func (s *Store) readObject(ctx context.Context, op Op, key string) (storedObject, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return storedObject{}, err
	}
	if err := s.enterCall(ctx, op, key); err != nil {
		return storedObject{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	if !ok {
		return storedObject{}, fmt.Errorf("%s %s: %w", op, key, objectstore.ErrNotFound)
	}
	return o, nil
}

func (s *Store) writeObject(ctx context.Context, op Op, key string, replace bool, content func() ([]byte, error)) (objectstore.Info, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return objectstore.Info{}, err
	}
	if err := s.enterCall(ctx, op, key); err != nil {
		return objectstore.Info{}, err
	}
	data, err := content()
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	return s.storeObject(op, key, data, replace)
}

func (s *Store) storeObject(op Op, key string, data []byte, replace bool) (objectstore.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[key]; ok && !replace {
		return objectstore.Info{}, fmt.Errorf("%s %s: %w", op, key, objectstore.ErrExists)
	}
	s.writes++
	info := objectstore.Info{Key: key, Size: int64(len(data)), ETag: fmt.Sprint(s.writes), ModTime: s.Clock.Now()}
	s.objects[key] = storedObject{info: info, data: data}
	return info, nil
}

func (s *Store) concatSources(src []objectstore.Source) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := []byte{}
	for i, piece := range src {
		if piece.Data != nil {
			data = append(data, piece.Data...)
			continue
		}
		if err := objectstore.CheckKey(piece.Key); err != nil {
			return nil, fmt.Errorf("source %d: %w", i, err)
		}
		o, ok := s.objects[piece.Key]
		if !ok {
			return nil, fmt.Errorf("source %d: %s: %w", i, piece.Key, objectstore.ErrNotFound)
		}
		n := piece.Length
		if n < 0 {
			n = o.info.Size - piece.Offset
		}
		if piece.Offset < 0 || n < 0 || piece.Offset+n > o.info.Size {
			return nil, fmt.Errorf("source %d: %w: %s", i, objectstore.ErrInvalidRange, piece.Key)
		}
		data = append(data, o.data[piece.Offset:piece.Offset+n]...)
	}
	return data, nil
}

func (s *Store) listInfos(prefix string) []objectstore.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []objectstore.Info
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) {
			infos = append(infos, s.objects[key].info)
		}
	}
	return infos
}

func readExact(r io.Reader, size int64) ([]byte, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != size {
		return nil, fmt.Errorf("%w: got %d bytes of %d", objectstore.ErrSize, len(data), size)
	}
	return data, nil
}
