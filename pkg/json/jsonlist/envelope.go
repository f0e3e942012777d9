package jsonlist

import "bytes"

// Envelope is where the fields apiVersion, kind, metadata and status are in an item. The zero value
// knows no place.
type Envelope struct {
	fields [4]byteSpan // from the name to the end of the value, in the order sent
	count  int         // more than there is room for is an item with a field that it has twice
}

func (e *Envelope) addField(from, to int) {
	if e.count < len(e.fields) {
		e.fields[e.count] = byteSpan{from, to}
	}
	e.count++
}

// AppendRest appends what raw, the item, has around the envelope: runs of fields without the commas
// around them. It returns false if the places are unknown.
func (e *Envelope) AppendRest(dst [][]byte, raw []byte) ([][]byte, bool) {
	if e.count == 0 || e.count > len(e.fields) {
		return dst, false
	}
	from := 1
	for _, f := range e.fields[:e.count] {
		dst = appendRun(dst, raw[from:f.from])
		from = f.to
	}
	return appendRun(dst, raw[from:len(raw)-1]), true
}

func appendRun(dst [][]byte, run []byte) [][]byte {
	if run = bytes.Trim(run, ","); len(run) > 0 {
		dst = append(dst, run)
	}
	return dst
}
