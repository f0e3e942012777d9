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

// staysInMemory bounds the objects that wait in memory, in bytes; further ones wait in files.
const staysInMemory = 8 << 20

// stay is what is kept of an object while it waits in the middle of its actions.
type stay struct {
	entry *outcome.Entry
	next  int            // the action to ask next
	wait  *dispatch.Wait // what it waits for; nil before the first wait
	asked []asked        // the additional items of the action before next
	// question is what the action before next wants to be asked about them, nil for nothing.
	question *question
	// object is what the actions made of it; nil for one that can be read from the backup again.
	object  *action.Object
	frozen  frozen
	yielded bool // it was refused without its owners, and waited for them
	tried   bool // it was laid aside, perhaps after a request that took effect although it failed
}

// asked is an additional item, and its node or -1.
type asked struct {
	item action.Item
	node int32
}

// frozen is an encoded object, in memory or in a file.
type frozen struct {
	raw  []byte
	path string
}

// stays are the objects that wait. The zero value is ready for use. Safe for concurrent use.
type stays struct {
	dir string

	mu   sync.Mutex
	held int
	of   map[int32]*stay
}

// put keeps a stay and its object until take.
func (s *stays) put(node int32, st *stay, raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.frozen = frozen{raw: raw}
	if s.dir != "" && s.held+len(raw) > staysInMemory {
		st.frozen = frozen{path: filepath.Join(s.dir, fmt.Sprintf("waiting-%d.json", node))}
		if err := os.WriteFile(st.frozen.path, raw, 0o600); err != nil {
			return fmt.Errorf("keep the object while it waits: %w", err)
		}
	}
	s.held += len(st.frozen.raw)
	if s.of == nil {
		s.of = map[int32]*stay{}
	}
	s.of[node] = st
	return nil
}

// keep is put for an object that has been through its actions.
func (s *stays) keep(node int32, st *stay, wait *dispatch.Wait) error {
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

// take returns the stay of a node, nil if it does not wait.
func (s *stays) take(node int32) *stay {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.of[node]
	if st != nil {
		delete(s.of, node)
		s.held -= len(st.frozen.raw)
	}
	return st
}

// thaw returns the object; only the first call can.
func (f *frozen) thaw() ([]byte, error) {
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
