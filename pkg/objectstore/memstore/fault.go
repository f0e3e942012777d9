package memstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Op names a kind of call for faults and counts.
type Op string

// The kinds of calls. OpGet covers Get and GetRange, OpList also ListPrefixes, OpRead a Read of an
// opened object.
const (
	OpGet     Op = "get"
	OpRead    Op = "read"
	OpStat    Op = "stat"
	OpList    Op = "list"
	OpPut     Op = "put"
	OpCreate  Op = "create"
	OpDelete  Op = "delete"
	OpCompose Op = "compose"
	OpSweep   Op = "sweep" // the key is the prefix
)

// Fault decides whether a call fails: a non-nil error is returned instead of doing anything. For
// OpList key is the prefix. It may be called concurrently and may itself use the store.
type Fault func(op Op, key string) error

// Inject sets the fault for calls from now on; nil removes it.
func (s *Store) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Calls returns how often op was called, failed calls included.
func (s *Store) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Keys returns all keys in order.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Bytes returns a copy of an object's content, without faults or counts.
func (s *Store) Bytes(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key]
	return bytes.Clone(o.data), ok
}

// Set stores an object as it is, without faults or counts: for damaged content and for setting up.
func (s *Store) Set(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.objects[key] = storedObject{
		info: objectstore.Info{Key: key, Size: int64(len(data)), ETag: fmt.Sprint(s.writes), ModTime: s.Clock.Now()},
		data: append([]byte{}, data...),
	}
}

func (s *Store) enterCall(ctx context.Context, op Op, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.calls[op]++
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(op, key)
}

type reader struct {
	ctx   context.Context
	store *Store
	key   string
	r     *bytes.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.store.enterCall(r.ctx, OpRead, r.key); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func (*reader) Close() error { return nil }
