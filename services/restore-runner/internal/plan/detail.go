package plan

import (
	"encoding/binary"
	"errors"
)

// errDetail means that a detail is not what was written.
var errDetail = errors.New("damaged entry of the plan")

// appendDetail encodes d: texts with their lengths before them, and numbers as varints.
func appendDetail(dst []byte, d *detail) []byte {
	for _, text := range []string{d.name, d.path, d.uid} {
		dst = appendBytes(dst, text)
	}
	for _, number := range []int64{d.size, d.offset, d.length} {
		dst = binary.AppendVarint(dst, number)
	}
	dst = appendBytes(dst, d.sha256)
	dst = binary.AppendUvarint(dst, uint64(len(d.links)))
	for _, l := range d.links {
		dst = append(appendBytes(dst, l.uid), byte(l.relation))
	}
	return dst
}

func appendBytes[T string | []byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// decodeDetail undoes appendDetail. Nothing of the result lies in b.
func decodeDetail(b []byte) (d detail, err error) {
	var sum []byte
	for _, text := range []*string{&d.name, &d.path, &d.uid} {
		var found []byte
		if found, b, err = cutBytes(b); err != nil {
			return detail{}, err
		}
		*text = string(found)
	}
	for _, number := range []*int64{&d.size, &d.offset, &d.length} {
		v, n := binary.Varint(b)
		if n <= 0 {
			return detail{}, errDetail
		}
		*number, b = v, b[n:]
	}
	if sum, b, err = cutBytes(b); err != nil {
		return detail{}, err
	}
	d.sha256 = append(d.sha256, sum...)
	count, n := binary.Uvarint(b)
	if n <= 0 || count > uint64(len(b)) {
		return detail{}, errDetail
	}
	b = b[n:]
	for range count {
		uid, rest, err := cutBytes(b)
		if err != nil || len(rest) == 0 {
			return detail{}, errDetail
		}
		d.links = append(d.links, link{uid: string(uid), relation: Relation(rest[0])})
		b = rest[1:]
	}
	return d, nil
}

// cutBytes returns what appendBytes put first, and the rest.
func cutBytes(b []byte) (text, rest []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, nil, errDetail
	}
	return b[n:][:size], b[n:][size:], nil
}
