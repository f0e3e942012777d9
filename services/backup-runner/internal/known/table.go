package known

import "encoding/binary"

// shards is how many tables share the keys: each grows by itself, so that growing
// needs little memory beside what is there.
const shards = 64

// table maps keys to fates in 18 to 22 bytes for each: Go's map takes up to 39.
// Nothing is ever removed, and Unknown is never put.
type table [shards]shard

type shard struct {
	slots []slot
	n     int
}

type slot struct {
	key  Key
	fate Fate
}

func (t *table) get(k Key) Fate { return t[k[11]%shards].get(k) }

func (t *table) put(k Key, f Fate) { t[k[11]%shards].put(k, f) }

func (s *shard) get(k Key) Fate {
	if s.n == 0 {
		return Unknown
	}
	return s.slots[s.find(k)].fate
}

func (s *shard) put(k Key, f Fate) {
	if 10*(s.n+1) > 9*len(s.slots) {
		s.grow()
	}
	at := &s.slots[s.find(k)]
	if at.fate == Unknown {
		s.n++
	}
	*at = slot{k, f}
}

// find returns where the key is, or the free slot where it belongs.
func (s *shard) find(k Key) int {
	i := int(binary.LittleEndian.Uint64(k[:]) % uint64(len(s.slots))) //nolint:gosec // less than a length
	for s.slots[i].fate != Unknown && s.slots[i].key != k {
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
		if old[i].fate != Unknown {
			s.slots[s.find(old[i].key)] = old[i]
		}
	}
}
