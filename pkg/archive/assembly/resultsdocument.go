package assembly

import (
	"encoding/binary"
	"io"

	"github.com/holdfast-io/holdfast/pkg/json/rawjson"
)

// Groups of the results, in the order of the file.
const (
	ofWarnings = 'w'
	ofErrors   = 'x'
	ofVelero   = 'a'
	ofCluster  = 'b'
	ofSpace    = 'c'
)

// document writes
// {"warnings":{"velero":[...],"cluster":[...],"namespaces":{"ns":[...]}},"errors":{...}} from
// messages in that order.
type document struct {
	group string
	text  []byte
}

func (d *document) addResult(out io.Writer, key, value []byte) error {
	length, n := binary.Uvarint(value)
	if n <= 0 || length > uint64(len(key)) {
		return errRecord
	}
	d.text = d.text[:0]
	if group := string(key[:length]); group != d.group {
		d.openGroup(group)
		d.group = group
	} else {
		d.text = append(d.text, ',')
	}
	d.text = rawjson.AppendQuoted(d.text, string(value[n:]))
	_, err := out.Write(d.text)
	return err
}

// openGroup closes the present group and opens another.
func (d *document) openGroup(group string) {
	sameHalf := false
	switch {
	case d.group == "" && group[0] == ofWarnings:
		d.text = append(d.text, `{"warnings":{`...)
	case d.group == "":
		d.text = append(d.text, `{"warnings":{},"errors":{`...)
	case d.group[0] == group[0]:
		sameHalf = true
		d.text = append(d.text, "],"...)
	default:
		d.closeGroup()
		d.text = append(d.text, `},"errors":{`...)
	}
	switch group[1] {
	case ofVelero:
		d.text = append(d.text, `"velero":[`...)
	case ofCluster:
		d.text = append(d.text, `"cluster":[`...)
	default:
		if !sameHalf || d.group[1] != ofSpace {
			d.text = append(d.text, `"namespaces":{`...)
		}
		d.text = append(rawjson.AppendQuoted(d.text, group[2:]), ":["...)
	}
}

func (d *document) closeGroup() {
	d.text = append(d.text, ']')
	if d.group[1] == ofSpace {
		d.text = append(d.text, '}')
	}
}

func (d *document) endDocument(out io.Writer) error {
	d.text = d.text[:0]
	switch {
	case d.group == "":
		d.text = append(d.text, `{"warnings":{},"errors":{}}`...)
	case d.group[0] == ofWarnings:
		d.closeGroup()
		d.text = append(d.text, `},"errors":{}}`...)
	default:
		d.closeGroup()
		d.text = append(d.text, `}}`...)
	}
	_, err := out.Write(append(d.text, '\n'))
	return err
}
