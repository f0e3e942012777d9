// Package objmeta decodes the part of an object's metadata that backups and restores decide by,
// straight from its JSON and without touching managedFields, which is often the larger half of it.
package objmeta

import "errors"

// ErrInvalid means that the metadata is not JSON or has a field of another type than Kubernetes
// gives it.
var ErrInvalid = errors.New("invalid metadata")

// Meta is an object's metadata. Strings are ordinary immutable strings and may be kept; one that is
// kept keeps all strings of its object in memory (strings.Clone cuts it loose). Slices are reused
// by the next Decode into the Meta.
type Meta struct {
	Name            string
	Namespace       string
	UID             string
	ResourceVersion string
	// CreationTimestamp is as sent (RFC 3339).
	CreationTimestamp string
	// DeletionTimestamp is as sent (RFC 3339), empty unless the object is being deleted.
	DeletionTimestamp string
	Labels            Pairs
	Annotations       Pairs
	Owners            []Owner
	Finalizers        []string
}

// Owner is one entry of ownerReferences.
type Owner struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         bool   `json:"controller,omitempty"`
	BlockOwnerDeletion bool   `json:"blockOwnerDeletion,omitempty"`
}

// Pair is one label or annotation.
type Pair struct{ Key, Value string }

// Pairs are labels or annotations in the order sent. It implements labels.Labels of
// k8s.io/apimachinery, so that selectors match it without a map.
type Pairs []Pair

// Lookup returns the value of key and whether it is there.
func (p Pairs) Lookup(key string) (string, bool) {
	for i := len(p) - 1; i >= 0; i-- { // the last of equal keys counts, as in every JSON decoder
		if p[i].Key == key {
			return p[i].Value, true
		}
	}
	return "", false
}

// Get returns the value of key, empty when it is not there.
func (p Pairs) Get(key string) string {
	v, _ := p.Lookup(key)
	return v
}

// Has reports whether key is there.
func (p Pairs) Has(key string) bool {
	_, ok := p.Lookup(key)
	return ok
}

// Map returns a new map; nil when there are no pairs.
func (p Pairs) Map() map[string]string {
	if len(p) == 0 {
		return nil
	}
	m := make(map[string]string, len(p))
	for _, kv := range p {
		m[kv.Key] = kv.Value
	}
	return m
}

// FromMap returns the pairs of m in no particular order.
func FromMap(m map[string]string) Pairs {
	p := make(Pairs, 0, len(m))
	for k, v := range m {
		p = append(p, Pair{Key: k, Value: v})
	}
	return p
}

// Deleting reports whether the object is being deleted.
func (m *Meta) Deleting() bool { return m.DeletionTimestamp != "" }
