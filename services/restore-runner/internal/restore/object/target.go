package object

import (
	"maps"
	"sync"
)

// TargetNamespaces are the target namespaces of a restore. Safe for concurrent use.
type TargetNamespaces struct {
	mu      sync.Mutex
	lost    map[string]string // -> why
	created map[string]bool
}

// NewTargetNamespaces returns the target namespaces. lost are those that an earlier holder of the restore could not
// prepare, with the reason.
func NewTargetNamespaces(lost map[string]string) *TargetNamespaces {
	n := &TargetNamespaces{lost: map[string]string{}, created: map[string]bool{}}
	maps.Copy(n.lost, lost)
	return n
}

// Lose notes that nothing can be restored into a namespace.
func (n *TargetNamespaces) Lose(name, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost[name] = reason
}

// Lost returns why nothing can be restored into a namespace, "" when something can.
func (n *TargetNamespaces) Lost(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[name]
}

// Create notes that this process created a namespace.
func (n *TargetNamespaces) Create(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.created[name] = true
}

// Created reports that this process created the namespace: nothing of before the restore is in it.
func (n *TargetNamespaces) Created(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.created[name]
}
