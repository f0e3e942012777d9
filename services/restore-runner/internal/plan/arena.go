package plan

// chunkBytes is how much memory an arena takes at once.
const chunkBytes = 64 << 10

// arena holds encoded details in large pieces of memory.
type arena struct{ chunks [][]byte }

// position is where a detail begins in an arena.
type position struct{ chunk, offset uint32 }

// add copies an encoded detail.
func (a *arena) add(encoded []byte) position {
	last := len(a.chunks) - 1
	if last < 0 || len(a.chunks[last])+len(encoded) > cap(a.chunks[last]) {
		a.chunks = append(a.chunks, make([]byte, 0, max(chunkBytes, len(encoded))))
		last++
	}
	at := position{chunk: uint32(last), offset: uint32(len(a.chunks[last]))} //nolint:gosec // a chunk is as long as one detail at most
	a.chunks[last] = append(a.chunks[last], encoded...)
	return at
}

// detailAt returns the bytes from a position on.
func (a *arena) detailAt(p position) detailReader { return a.chunks[p.chunk][p.offset:] }
