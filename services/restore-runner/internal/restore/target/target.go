// Package target keeps what is known of the namespaces that objects are restored to.
package target

import (
	"maps"
	"sync"
)

// Namespaces are the target namespaces of a restore. Safe for concurrent use.
type Namespaces struct {
	mu      sync.Mutex
	lost    map[string]string // -> why
	created map[string]bool
}

// New returns the target namespaces. lost are those that an earlier holder of the restore could not
// prepare, with the reason.
func New(lost map[string]string) *Namespaces {
	n := &Namespaces{lost: map[string]string{}, created: map[string]bool{}}
	maps.Copy(n.lost, lost)
	return n
}

// Lose notes that nothing can be restored into a namespace.
func (n *Namespaces) Lose(name, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost[name] = reason
}

// Lost returns why nothing can be restored into a namespace, "" when something can.
func (n *Namespaces) Lost(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost[name]
}

// Create notes that this process created a namespace.
func (n *Namespaces) Create(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.created[name] = true
}

// Created reports that this process created the namespace: nothing of before the restore is in it.
func (n *Namespaces) Created(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.created[name]
}
