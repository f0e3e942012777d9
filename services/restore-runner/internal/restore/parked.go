package restore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
)

// parkedInMemory bounds the objects that wait in memory, in bytes; further ones wait in files.
const parkedInMemory = 8 << 20

// parked is what is kept of an object while it waits in the middle of its actions.
type parked struct {
	entry      *outcome.Entry
	next       int            // the action to ask next
	wait       *dispatch.Wait // what it waits for; nil before the first wait
	additional []additional   // the additional items of the action before next
	// probe is what the action before next wants to be asked about them, nil for nothing.
	probe *probe
	// object is what the actions made of it; nil for one that can be read from the backup again.
	object  *action.Object
	encoded encoded
	yielded bool // it was refused without its owners, and waited for them
	tried   bool // it was laid aside, perhaps after a request that took effect although it failed
}

// additional is an additional item, and its node or -1.
type additional struct {
	item action.Item
	node int32
}

// encoded is an encoded object, in memory or in a file.
type encoded struct {
	raw  []byte
	path string
}

// parkedObjects are the objects that wait. The zero value is ready for use. Safe for concurrent
// use.
type parkedObjects struct {
	dir string

	mu   sync.Mutex
	held int
	of   map[int32]*parked
}

// put keeps what is known of an object until take.
func (s *parkedObjects) put(node int32, st *parked, raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.encoded = encoded{raw: raw}
	if s.dir != "" && s.held+len(raw) > parkedInMemory {
		st.encoded = encoded{path: filepath.Join(s.dir, fmt.Sprintf("waiting-%d.json", node))}
		if err := os.WriteFile(st.encoded.path, raw, 0o600); err != nil {
			return fmt.Errorf("keep the object while it waits: %w", err)
		}
	}
	s.held += len(st.encoded.raw)
	if s.of == nil {
		s.of = map[int32]*parked{}
	}
	s.of[node] = st
	return nil
}

// keep is put for an object that has been through its actions.
func (s *parkedObjects) keep(node int32, st *parked, wait *dispatch.Wait) error {
	var raw []byte
	if st.object != nil {
		var err error
		if raw, err = st.object.JSON(); err != nil {
			return err
		}
	}
	st.wait, st.object = wait, nil
	return s.put(node, st, raw)
}

// take returns what was kept of a node, nil if it does not wait.
func (s *parkedObjects) take(node int32) *parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.of[node]
	if st != nil {
		delete(s.of, node)
		s.held -= len(st.encoded.raw)
	}
	return st
}

// read returns the object; only the first call can.
func (f *encoded) read() ([]byte, error) {
	if f.path == "" {
		return f.raw, nil
	}
	raw, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("take up the object after its wait: %w", err)
	}
	if err := os.Remove(f.path); err != nil {
		return nil, fmt.Errorf("take up the object after its wait: %w", err)
	}
	return raw, nil
}
