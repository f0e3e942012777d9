package tarball

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// pathRecord is what one side says about a path.
type pathRecord struct {
	known    bool
	at, size int64
	sum      [32]byte
}

// pathRecords is everything that is known about a path. Of several entries the last one counts, as when the
// tarball is unpacked.
type pathRecords struct{ listed, stored, copied pathRecord }

func (p *pathRecords) addRecord(value []byte) {
	r := pathRecord{known: true, at: int64(binary.BigEndian.Uint64(value[1:])), size: int64(binary.BigEndian.Uint64(value[9:]))} //nolint:gosec // written alike
	copy(r.sum[:], value[17:])
	switch value[0] {
	case listed:
		p.listed = r
	case stored:
		p.stored = r
	default:
		p.copied = r
	}
}

// comparePaths finds the faults of all paths, in order.
func (v *verifier) comparePaths() (err error) {
	sorted, err := v.sorter.Sort()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sorted.Close()) }()
	var path []byte
	var all pathRecords
	for {
		key, value, err := sorted.Next()
		ended := errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if path != nil && (ended || !bytes.Equal(path, key)) {
			v.comparePath(string(path), &all)
			all = pathRecords{}
		}
		if ended {
			return nil
		}
		path = append(path[:0], key...)
		all.addRecord(value)
	}
}

func (v *verifier) comparePath(path string, all *pathRecords) {
	want := &all.listed
	switch {
	case !want.known:
		v.AddFault(FaultExtra, path, "is not in the manifest")
	case !all.stored.known && v.damaged[want.at]:
		v.AddFault(FaultUnreadable, path, "lies in a piece of the tarball that cannot be read")
	case !all.stored.known:
		v.AddFault(FaultMissing, path, "is not in the tarball")
	case all.stored.size != want.size || all.stored.sum != want.sum:
		v.AddFault(FaultDiffers, path, fmt.Sprintf("has %d bytes with SHA-256 %x, the manifest says %d with %x", all.stored.size, all.stored.sum, want.size, want.sum))
	case want.at != outside && all.stored.at != want.at:
		v.AddFault(FaultUnreadable, path, fmt.Sprintf("does not lie in the range at %d that the manifest names", want.at))
	case all.copied.known && (all.copied.size != want.size || all.copied.sum != want.sum):
		v.AddFault(FaultDiffers, path, "its second copy, of the preferred version, is another one")
	}
}
