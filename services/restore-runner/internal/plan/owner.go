package plan

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"sort"
)

// owners finds the nodes that own others by their UIDs in the old cluster: by a hash, whose seed is
// not known outside. Several UIDs may have one hash.
type owners struct {
	seed maphash.Seed
	// referred are the hashes of all UIDs that nodes refer to, while the plan is built; sorted
	// once.
	referred []uint64
	nodes    []owner
}

// owner is a node by the hash of its UID.
type owner struct {
	hash uint64
	node int32
}

func (o *owners) hash(uid string) uint64 { return maphash.String(o.seed, uid) }

// refer notes that some node names an owner.
func (o *owners) refer(uid string) { o.referred = append(o.referred, o.hash(uid)) }

// seal ends the notes; from then on add can be asked.
func (o *owners) seal() {
	slices.Sort(o.referred)
	o.referred = slices.Clip(slices.Compact(o.referred))
}

// add notes a node if others refer to it; nodes come in ascending order.
func (o *owners) add(uid string, node int32) bool {
	if uid == "" {
		return false
	}
	hash := o.hash(uid)
	if _, found := slices.BinarySearch(o.referred, hash); !found {
		return false
	}
	o.nodes = append(o.nodes, owner{hash, node})
	return true
}

// complete ends the building. Of two nodes with one UID the later counts.
func (o *owners) complete() {
	o.referred = nil
	slices.SortFunc(o.nodes, func(a, b owner) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(b.node, a.node)) })
}

// of yields the nodes whose UID has the hash of this one.
func (o *owners) of(uid string) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		if len(o.nodes) == 0 {
			return
		}
		hash := o.hash(uid)
		for i := sort.Search(len(o.nodes), func(i int) bool { return o.nodes[i].hash >= hash }); i < len(o.nodes) && o.nodes[i].hash == hash; i++ {
			if !yield(o.nodes[i].node) {
				return
			}
		}
	}
}
