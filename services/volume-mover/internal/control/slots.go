package control

import "sync"

// slotTable limits how many movers run at once. Safe for concurrent use.
type slotTable struct {
	perNode, total int

	mu    sync.Mutex
	nodes map[string]string // by request
}

func newSlots(perNode, total int) *slotTable {
	return &slotTable{perNode: perNode, total: total, nodes: map[string]string{}}
}

// isFull reports whether no node has a slot.
func (s *slotTable) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes) >= s.total
}

// take takes a slot of a node for a request that has none; false if there is none.
func (s *slotTable) take(key, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.nodes[key]; ok {
		return true
	}
	used := 0
	for _, other := range s.nodes {
		if other == node {
			used++
		}
	}
	if len(s.nodes) >= s.total || used >= s.perNode {
		return false
	}
	s.nodes[key] = node
	return true
}

// hold counts a request that was accepted before, whatever the limits are.
func (s *slotTable) hold(key, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[key] = node
}

// release gives the slot of a request back, if it has one.
func (s *slotTable) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, key)
}
