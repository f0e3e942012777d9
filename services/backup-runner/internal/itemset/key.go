package itemset

import (
	"encoding/binary"
	"hash/maphash"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key is the hash of an object's identity. Keys are compared within one process only.
type Key [12]byte

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// KeyOf returns the key of an object. 96 bits with a secret seed: two of a million objects share a
// key once in 10^17 backups.
func KeyOf(kind schema.GroupKind, namespace, name string) (k Key) {
	var sums [2]uint64
	for i := range seeds {
		var h maphash.Hash
		h.SetSeed(seeds[i])
		for _, text := range [...]string{kind.Group, kind.Kind, namespace, name} {
			_, _ = h.WriteString(text) // a hash never fails
			_ = h.WriteByte(0)
		}
		sums[i] = h.Sum64()
	}
	binary.LittleEndian.PutUint64(k[:], sums[0])
	binary.LittleEndian.PutUint32(k[8:], uint32(sums[1])) //nolint:gosec // half of it is enough
	return k
}
