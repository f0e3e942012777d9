package plan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

// appendKey makes the key of an item, so that the order of bytes is the order of dispatch: by rank
// and name of the kind, then by namespace and name in the backup.
func appendKey(dst []byte, k *Kind, number uint16, item *manifest.Item) []byte {
	dst = append(append(append(dst, byte(k.rank)), k.name...), 0)
	dst = binary.BigEndian.AppendUint16(dst, number) // two kinds may have one name
	return append(append(append(dst, item.Namespace...), 0), item.Name...)
}

// appendNode encodes what is kept in memory of a node; all but owns is known by then.
func appendNode(dst []byte, n *node) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, n.size)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n.namespace)) //nolint:gosec // comes back as it was
	dst = binary.LittleEndian.AppendUint16(dst, n.kind)
	return append(dst, flag(n.reserve)|flag(n.scoped)<<1)
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// nodeBytes is the length of an encoded node.
const nodeBytes = 11

func decodeNode(b []byte) node {
	return node{
		size: binary.LittleEndian.Uint32(b), namespace: int32(binary.LittleEndian.Uint32(b[4:])), //nolint:gosec // as it was
		kind: binary.LittleEndian.Uint16(b[8:]), reserve: b[10]&1 != 0, scoped: b[10]&2 != 0,
	}
}

// sort numbers kinds and nodes in the order of dispatch. Of several items of one name the first is
// kept. It finds the Namespace objects, and the nodes that others refer to as owners.
func (b *builder) sort() error {
	p := b.plan
	p.owners.seal()
	p.nodes = make([]node, 0, b.taken)
	sorted, err := b.sorter.Sort()
	if err != nil {
		return err
	}
	defer func() { _ = sorted.Close() }()
	out, err := newSpill(p.dir)
	if err != nil {
		return err
	}
	p.details = out.spill
	n := numbering{plan: p, unordered: p.kinds, last: -1}
	p.kinds, p.places = nil, make(map[string]int32, len(n.unordered))
	var last []byte
	for {
		key, value, err := sorted.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if last != nil && bytes.Equal(key, last) {
			continue
		}
		last = append(last[:0], key...)
		if err := n.take(value); err != nil {
			return err
		}
		if err := out.add(value[nodeBytes:]); err != nil {
			return err
		}
	}
	p.owners.complete()
	_, err = out.complete()
	return err
}

// numbering gives nodes their numbers.
type numbering struct {
	plan      *Plan
	unordered []Kind
	last      int // of unordered, the kind of the last node
}

func (n *numbering) take(value []byte) error {
	p := n.plan
	this := decodeNode(value)
	if int(this.kind) != n.last {
		n.last = int(this.kind)
		p.places[n.unordered[n.last].name] = int32(len(p.kinds))
		p.kinds = append(p.kinds, n.unordered[n.last])
	}
	this.kind = uint16(len(p.kinds) - 1)
	d, err := decodeDetail(value[nodeBytes:])
	if err != nil {
		return err
	}
	i := int32(len(p.nodes))
	this.owns = p.owners.add(d.uid, i)
	if p.kinds[this.kind].name == namespacesResource {
		p.objects[d.name] = i
	}
	if this.reserve {
		p.reserve++
	}
	p.nodes = append(p.nodes, this)
	return nil
}
