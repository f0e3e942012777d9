package manifest

import (
	"encoding/binary"
	"fmt"
)

// KindInfo is one kind of a manifest.
type KindInfo struct {
	// Kind as KindName returns it.
	Kind string `json:"kind"`
	// Resource as in tarball paths, such as "deployments.apps".
	Resource string `json:"resource"`
	// Preferred reports that the kind's version is the preferred one, whose objects have
	// un-versioned paths.
	Preferred bool  `json:"preferred"`
	Items     int64 `json:"items"`
}

// directory holds where the blocks are. It repeats the header, so that one read is enough to open a
// manifest.
type directory struct {
	Header Header     `json:"header"`
	Kinds  []KindInfo `json:"kinds"`
	Blocks []block    `json:"blocks"`
	Index  []block    `json:"index"`
}

// block is one gzip member.
type block struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
	Items  int   `json:"items"`
	// Kind is the index of the first item's kind, First its "namespace/name"; in the index First is
	// a UID.
	Kind  int    `json:"kind,omitempty"`
	First string `json:"first"`
}

// The footer is an empty gzip member with an extra field (RFC 1952) that holds offset and length of
// the directory's member, so that gunzip does not see it and a reader finds it at a fixed place.
const footerBytes = 42

func appendFooter(dst []byte, offset, length int64) []byte {
	dst = append(dst, 0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 20, 0, 'H', 'F', 16, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(offset)) //nolint:gosec // not negative
	dst = binary.LittleEndian.AppendUint64(dst, uint64(length)) //nolint:gosec // not negative
	return append(dst, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

func parseFooter(tail []byte, size int64) (offset, length int64, err error) {
	if len(tail) < footerBytes {
		return 0, 0, fmt.Errorf("%w: only %d bytes", ErrCorrupt, len(tail))
	}
	f := tail[len(tail)-footerBytes:]
	offset = int64(binary.LittleEndian.Uint64(f[16:])) //nolint:gosec // checked below
	length = int64(binary.LittleEndian.Uint64(f[24:])) //nolint:gosec // checked below
	if string(f) != string(appendFooter(nil, offset, length)) {
		return 0, 0, fmt.Errorf("%w: no footer at the end", ErrCorrupt)
	}
	if offset < 0 || length <= 0 || offset > size-footerBytes || length != size-footerBytes-offset {
		return 0, 0, fmt.Errorf("%w: directory at %d+%d of %d bytes", ErrCorrupt, offset, length, size)
	}
	return offset, length, nil
}
