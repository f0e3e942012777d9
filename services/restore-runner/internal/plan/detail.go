package plan

import "encoding/binary"

// nodeDetail is the part of a node that is kept encoded: a garbage collector has no pointers to follow in
// it, and it takes half the memory.
type nodeDetail struct {
	name, uid, path string
	// size is the length of the body in bytes, offset and length are those of its gzip member.
	size, offset, length int64
	sha256               []byte // 32 bytes, or none
	links                []ownerLink
	names                int32 // the number of what it names, 0 for nothing
}

// appendDetail encodes d: texts with their lengths before them, and numbers as varints. The name
// comes first, then the UID.
func appendDetail(dst []byte, d *nodeDetail) []byte {
	for _, text := range []string{d.name, d.uid, d.path, string(d.sha256)} {
		dst = appendText(dst, text)
	}
	for _, number := range []int64{d.size, d.offset, d.length, int64(len(d.links))} {
		dst = binary.AppendVarint(dst, number)
	}
	for _, l := range d.links {
		dst = append(binary.AppendVarint(dst, int64(l.owner)), byte(l.relation))
	}
	return binary.AppendVarint(dst, int64(d.names))
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// detailReader reads what appendDetail wrote, one field after the other.
type detailReader []byte

func (r *detailReader) readText() []byte {
	size, n := binary.Uvarint(*r)
	end := n + int(size) //nolint:gosec // a length
	text := (*r)[n:end]
	*r = (*r)[end:]
	return text
}

func (r *detailReader) readNumber() int64 {
	number, n := binary.Varint(*r)
	*r = (*r)[n:]
	return number
}

func (r *detailReader) readLink() ownerLink {
	l := ownerLink{owner: int32(r.readNumber())} //nolint:gosec // comes back as it was
	l.relation = Relation((*r)[0])
	*r = (*r)[1:]
	return l
}

// readDetail decodes all but the links.
func (r *detailReader) readDetail() nodeDetail {
	d := nodeDetail{name: string(r.readText()), uid: string(r.readText()), path: string(r.readText()), sha256: r.readText()}
	d.size, d.offset, d.length = r.readNumber(), r.readNumber(), r.readNumber()
	return d
}

// skipToLinks goes to the links.
func (r *detailReader) skipToLinks() {
	for range 4 {
		r.readText()
	}
	for range 3 {
		r.readNumber()
	}
}

// readLinks decodes the links, after the other fields.
func (r *detailReader) readLinks() []ownerLink {
	links := make([]ownerLink, r.readNumber())
	for i := range links {
		links[i] = r.readLink()
	}
	return links
}
