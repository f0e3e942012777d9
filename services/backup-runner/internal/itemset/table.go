package itemset

import "encoding/binary"

// shards is how many tables share the keys: each grows by itself, so that growing needs little
// additional memory.
const shards = 64

// slotTable maps keys to their slots in 22 to 28 bytes for each: Go's map takes up to 47. Nothing is
// ever removed.
type slotTable [shards]tableShard

type tableShard struct {
	slots []itemSlot
	n     int
}

// itemSlot is what became of one object.
type itemSlot struct {
	key    Key
	state  slotState
	offset uint32 // of its place, if it has one
}

// slotState is a result, what else is to be remembered, and the file of a place.
type slotState uint32

const (
	resultBits slotState = 1<<4 - 1
	present    slotState = 1 << 4 // the slot is taken
	placed     slotState = 1 << 5 // the object was spooled, at its place
	detached   slotState = 1 << 6 // it was given away out of its block, which it has not joined since
	entered    slotState = 1 << 7 // it is in a block of this round

	fileShift = 8
)

func (s *itemSlot) itemResult() Result { return Result(s.state & resultBits) }

func (s *itemSlot) setResult(f Result) { s.state = s.state&^resultBits | slotState(f) }

func (s *itemSlot) hasState(all slotState) bool { return s.state&all == all }

func (s *itemSlot) itemPlace() Place {
	return Place{File: uint32(s.state >> fileShift), Offset: s.offset}
}

func (s *itemSlot) setPlace(at Place) {
	s.state = s.state&(1<<fileShift-1) | placed | slotState(at.File<<fileShift)
	s.offset = at.Offset
}

// getSlot returns the slot of a key, an empty one if there is none.
func (t *slotTable) getSlot(k Key) itemSlot {
	s := &t[k[11]%shards]
	if s.n == 0 {
		return itemSlot{}
	}
	return s.slots[s.findIndex(k)]
}

// ensureSlot returns the slot of a key, made if there is none. It is valid until the next call.
func (t *slotTable) ensureSlot(k Key) *itemSlot {
	s := &t[k[11]%shards]
	if 10*(s.n+1) > 9*len(s.slots) {
		s.growTable()
	}
	found := &s.slots[s.findIndex(k)]
	if found.state == 0 {
		s.n++
		found.key, found.state = k, present
	}
	return found
}

// clearMark takes a mark off all slots.
func (t *slotTable) clearMark(mark slotState) {
	for i := range t {
		for j := range t[i].slots {
			t[i].slots[j].state &^= mark
		}
	}
}

// findIndex returns where the key is, or the free slot where it belongs.
func (s *tableShard) findIndex(k Key) int {
	i := int(binary.LittleEndian.Uint64(k[:]) % uint64(len(s.slots))) //nolint:gosec // less than a length
	for s.slots[i].state != 0 && s.slots[i].key != k {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	return i
}

func (s *tableShard) growTable() {
	old := s.slots
	s.slots = make([]itemSlot, max(16, len(old)+len(old)/4))
	for i := range old {
		if old[i].state != 0 {
			s.slots[s.findIndex(old[i].key)] = old[i]
		}
	}
}
