package itemset

import "encoding/binary"

// shards is how many tables share the keys: each grows by itself, so that growing needs little
// additional memory.
const shards = 64

// table maps keys to their slots in 22 to 28 bytes for each: Go's map takes up to 47. Nothing is
// ever removed.
type table [shards]shard

type shard struct {
	slots []slot
	n     int
}

// slot is what became of one object.
type slot struct {
	key    Key
	state  state
	offset uint32 // of its place, if it has one
}

// state is a result, what else is to be remembered, and the file of a place.
type state uint32

const (
	resultBits state = 1<<4 - 1
	present    state = 1 << 4 // the slot is taken
	placed     state = 1 << 5 // the object was spooled, at its place
	detached   state = 1 << 6 // it was given away out of its block, which it has not joined since
	entered    state = 1 << 7 // it is in a block of this round

	fileShift = 8
)

func (s *slot) result() Result { return Result(s.state & resultBits) }

func (s *slot) set(f Result) { s.state = s.state&^resultBits | state(f) }

func (s *slot) has(all state) bool { return s.state&all == all }

func (s *slot) place() Place { return Place{File: uint32(s.state >> fileShift), Offset: s.offset} }

func (s *slot) lies(at Place) {
	s.state = s.state&(1<<fileShift-1) | placed | state(at.File<<fileShift)
	s.offset = at.Offset
}

// get returns the slot of a key, an empty one if there is none.
func (t *table) get(k Key) slot {
	s := &t[k[11]%shards]
	if s.n == 0 {
		return slot{}
	}
	return s.slots[s.find(k)]
}

// at returns the slot of a key, made if there is none. It is valid until the next call.
func (t *table) at(k Key) *slot {
	s := &t[k[11]%shards]
	if 10*(s.n+1) > 9*len(s.slots) {
		s.grow()
	}
	found := &s.slots[s.find(k)]
	if found.state == 0 {
		s.n++
		found.key, found.state = k, present
	}
	return found
}

// forget takes a mark off all slots.
func (t *table) forget(mark state) {
	for i := range t {
		for j := range t[i].slots {
			t[i].slots[j].state &^= mark
		}
	}
}

// find returns where the key is, or the free slot where it belongs.
func (s *shard) find(k Key) int {
	i := int(binary.LittleEndian.Uint64(k[:]) % uint64(len(s.slots))) //nolint:gosec // less than a length
	for s.slots[i].state != 0 && s.slots[i].key != k {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	return i
}

func (s *shard) grow() {
	old := s.slots
	s.slots = make([]slot, max(16, len(old)+len(old)/4))
	for i := range old {
		if old[i].state != 0 {
			s.slots[s.find(old[i].key)] = old[i]
		}
	}
}
