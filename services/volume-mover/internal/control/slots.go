package control

import (
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slotTable limits how many movers run at once. Safe for concurrent use.
type slotTable struct {
	perNode, total int

	mu      sync.Mutex
	nodes   map[string]string // by request
	waiting []waitingRequest  // in the order in which they came
}

// waitingRequest is one that found no slot.
type waitingRequest struct {
	key, node string
	object    client.Object
}

func newSlots(perNode, total int) *slotTable {
	return &slotTable{perNode: perNode, total: total, nodes: map[string]string{}}
}

// hasToWait reports whether there is no slot for a request: on no node, or on the one for which it waits.
func (s *slotTable) hasToWait(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.waiting, func(w waitingRequest) bool { return w.key == key })
	return len(s.nodes) >= s.total || i >= 0 && !s.hasSlot(s.waiting[i].node)
}

// takeSlot takes a slot of a node for a request that has none. If there is none, the request waits, and false is
// returned.
func (s *slotTable) takeSlot(v view, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.nodes[v.requestKey()]; ok {
		return true
	}
	if !s.hasSlot(node) {
		if !slices.ContainsFunc(s.waiting, func(w waitingRequest) bool { return w.key == v.requestKey() }) {
			s.waiting = append(s.waiting, waitingRequest{key: v.requestKey(), node: node, object: v.Object})
		}
		return false
	}
	s.dropWaiting(v.requestKey())
	s.nodes[v.requestKey()] = node
	return true
}

// hasSlot reports whether one more mover may run on a node; on any node, if that is empty.
func (s *slotTable) hasSlot(node string) bool {
	used := 0
	for _, other := range s.nodes {
		if other == node {
			used++
		}
	}
	return len(s.nodes) < s.total && (node == "" || used < s.perNode)
}

// dropWaiting removes a request from those that wait.
func (s *slotTable) dropWaiting(key string) {
	s.waiting = slices.DeleteFunc(s.waiting, func(w waitingRequest) bool { return w.key == key })
}

// holdSlot counts a request that was accepted before, whatever the limits are.
func (s *slotTable) holdSlot(key, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[key] = node
}

// freeSlot gives the slot of a request back, if it has one, and returns the request that may have it next, or
// nil.
func (s *slotTable) freeSlot(key string) client.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropWaiting(key)
	if _, ok := s.nodes[key]; !ok {
		return nil
	}
	delete(s.nodes, key)
	for _, w := range s.waiting {
		if s.hasSlot(w.node) {
			s.dropWaiting(w.key)
			return w.object
		}
	}
	return nil
}
