package actions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/dispatch"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/object"
)

// inMemory bounds the objects that wait in memory, in bytes; further ones wait in files.
const inMemory = 8 << 20

// PendingState is what is kept of an object while it waits, perhaps in the middle of its actions.
type PendingState struct {
	Entry *outcome.Entry
	// Next is the action to ask next.
	Next int
	// Wait is what it waits for; nil before the first wait.
	Wait *dispatch.Wait
	// Additional are the additional items of the action before Next.
	Additional []Additional
	// Probe is the readiness check of the action before Next, nil for none.
	Probe *Probe
	// Object is what the actions made of it; nil for one that can be read from the backup again.
	Object *action.Object
	// Yielded reports that it was refused without its owners, and waited for them.
	Yielded bool
	// Released reports that it guards Pods, and that they did not wait for it.
	Released bool
	// Tried reports that it has waited, perhaps after a request that took effect although it
	// failed.
	Tried bool

	encoded encodedObject
}

// Additional is an additional item, and its node or -1.
type Additional struct {
	Item action.Item
	Node int32
}

// encodedObject is an encoded object, in memory or in a file.
type encodedObject struct {
	raw  []byte
	path string
}

// PendingStore has the objects that wait. The zero value is ready for use. Safe for concurrent
// use.
type PendingStore struct {
	// Dir is an existing directory for objects that wait, once they are many. Empty keeps all of
	// them in memory.
	Dir string

	mu   sync.Mutex
	held int
	of   map[int32]*PendingState
}

// Put keeps what is known of an object until Resume.
func (s *PendingStore) Put(node int32, st *PendingState, raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.encoded = encodedObject{raw: raw}
	if s.Dir != "" && s.held+len(raw) > inMemory {
		st.encoded = encodedObject{path: filepath.Join(s.Dir, fmt.Sprintf("waiting-%d.json", node))}
		if err := os.WriteFile(st.encoded.path, raw, 0o600); err != nil {
			return fmt.Errorf("keep the object while it waits: %w", err)
		}
	}
	s.held += len(st.encoded.raw)
	if s.of == nil {
		s.of = map[int32]*PendingState{}
	}
	s.of[node] = st
	return nil
}

// Keep is Put for an object that has been through its actions.
func (s *PendingStore) Keep(node int32, st *PendingState, wait *dispatch.Wait) error {
	var raw []byte
	if st.Object != nil {
		var err error
		if raw, err = st.Object.JSON(); err != nil {
			return err
		}
	}
	st.Wait, st.Object = wait, nil
	return s.Put(node, st, raw)
}

// takeState returns what was kept of a node, nil if it does not wait.
func (s *PendingStore) takeState(node int32) *PendingState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.of[node]
	if st != nil {
		delete(s.of, node)
		s.held -= len(st.encoded.raw)
	}
	return st
}

// Resume takes an object up again, or begins it.
func (s *PendingStore) Resume(node int32, recorder *outcome.Recorder) *PendingState {
	if st := s.takeState(node); st != nil {
		failpoint.Hit("restore-runner/woken")
		return st
	}
	return &PendingState{Entry: recorder.Begin(node)}
}

// Read returns the object that Put kept; only the first call can.
func (s *PendingState) Read() ([]byte, error) { return s.encoded.readObject() }

func (f *encodedObject) readObject() ([]byte, error) {
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

// Delay keeps an object if err is a delay within its deadline, and removes the messages since mark,
// which the retry repeats. Without a wait it returns why the object fails.
func (s *PendingStore) Delay(ctx context.Context, node int32, st *PendingState, w object.DelayWaiter, err error, mark int) (*dispatch.Wait, error) {
	if object.IsEnding(ctx, err) {
		return nil, err
	}
	wait := w.Wait(err)
	if wait == nil {
		return nil, err
	}
	st.Tried = true
	if err := s.Keep(node, st, wait); err != nil {
		return nil, err
	}
	st.Entry.Rewind(mark)
	return wait, nil
}
