package tarball

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/extsort"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// FaultKind is what is wrong with a backup.
type FaultKind string

// The kinds of faults.
const (
	FaultMissing    FaultKind = "Missing"    // the manifest lists an object that the tarball does not hold
	FaultExtra      FaultKind = "Extra"      // the tarball holds something that the manifest does not list
	FaultDiffers    FaultKind = "Differs"    // size or hash are other ones than the manifest says
	FaultUnreadable FaultKind = "Unreadable" // a piece of the tarball, or an object where the manifest says it is, cannot be read
	FaultManifest   FaultKind = "Manifest"   // the backup's own manifest is damaged
)

// Fault is one thing that is wrong.
type Fault struct {
	Kind FaultKind
	// Path in the tarball; empty where it is the tarball or the manifest as a whole.
	Path   string
	Detail string
}

// maxFaults is how many faults a Verification names.
const maxFaults = 1000

// Verification is what a tarball was found to be.
type Verification struct {
	// Objects is how many the manifest lists, Bytes how many of the tarball were read.
	Objects, Bytes int64
	// Faults are the first thousand of Found.
	Faults []Fault
	Found  int64
}

// AddFault counts a fault.
func (v *Verification) AddFault(kind FaultKind, path, detail string) {
	if v.Found++; len(v.Faults) < maxFaults {
		v.Faults = append(v.Faults, Fault{kind, path, detail})
	}
}

// verifier is one reading of a tarball.
type verifier struct {
	Verification
	limits   Limits
	sorter   *extsort.Sorter // of what the manifest and the tarball say about each path
	sum      hash.Hash
	record   []byte
	members  []segmentPlace // of the manifest
	damaged  map[int64]bool // offsets of members that cannot be read, outside for what is in none
	progress func(read, size int64)
}

// outside stands for the offset of an entry in none of the manifest's members.
const outside = -1

// maxMembers bounds the places of members in memory: those of 1 TiB of objects. Twice as many are kept before
// repeated ones are removed.
const maxMembers = 1 << 20

// Verify reads the tarball of a backup once and compares it with the manifest m: the hash and size of each
// object and of its second copy, the lists, and the range that holds each object. Memory is bounded; dir
// is a work directory for sorting. An error means that the comparison could not be made; one of m is
// manifest.ErrCorrupt.
func Verify(ctx context.Context, store objectstore.Reader, m *manifest.Reader, backup, dir string, l Limits, progress func(read, size int64)) (*Verification, error) {
	v := &verifier{limits: l.withDefaults(), sorter: extsort.New(extsort.Config{Dir: dir}), sum: sha256.New(), damaged: map[int64]bool{}, progress: progress}
	defer func() { _ = v.sorter.Close() }()
	if err := v.addManifest(ctx, m); err != nil {
		return nil, err
	}
	if err := v.readTarball(ctx, store, m.Trailer(), layout.BackupTarball(backup)); err != nil {
		return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
	}
	return &v.Verification, v.comparePaths()
}

// addManifest notes what the manifest says.
func (v *verifier) addManifest(ctx context.Context, m *manifest.Reader) error {
	for item, err := range m.Items(ctx, manifest.Filter{}) {
		if err != nil {
			return err
		}
		v.Objects++
		sum, err := hex.DecodeString(item.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return fmt.Errorf("%w: SHA-256 of %s", manifest.ErrCorrupt, item.Path)
		}
		at := int64(outside)
		if item.Length > 0 {
			at = item.Offset
			if place := (segmentPlace{item.Offset, item.Length}); len(v.members) == 0 || v.members[len(v.members)-1] != place {
				v.members = append(v.members, place)
			}
		}
		if err := v.addRecord(item.Path, listed, at, item.Size, sum); err != nil {
			return err
		}
		if len(v.members) > 2*maxMembers {
			if err := v.sortMembers(); err != nil {
				return err
			}
		}
	}
	return v.sortMembers()
}

// sortMembers sorts the members and removes those that are there twice.
func (v *verifier) sortMembers() error {
	slices.SortFunc(v.members, func(a, b segmentPlace) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.length, b.length))
	})
	if v.members = slices.Compact(v.members); len(v.members) > maxMembers {
		return fmt.Errorf("%w: more than %d gzip members", manifest.ErrCorrupt, maxMembers)
	}
	return nil
}

// Records about a path: what the manifest lists, an entry of the tarball, and its second copy.
const (
	listed = 'm'
	stored = 't'
	copied = 'c'
)

func (v *verifier) addRecord(path string, what byte, at, size int64, sum []byte) error {
	v.record = append(v.record[:0], what)
	v.record = binary.BigEndian.AppendUint64(v.record, uint64(at))   //nolint:gosec // read back alike
	v.record = binary.BigEndian.AppendUint64(v.record, uint64(size)) //nolint:gosec // read back alike
	v.record = append(v.record, sum...)
	return v.sorter.Add([]byte(path), v.record)
}

// readTarball notes what the tarball holds. It is read as one stream, in the pieces that the manifest names
// and those between them, so that damage of one piece hides no other.
func (v *verifier) readTarball(ctx context.Context, store objectstore.Reader, t manifest.Trailer, key string) error {
	info, err := store.Stat(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		v.AddFault(FaultUnreadable, "", "the tarball is missing")
		v.damaged[outside] = true
		for _, m := range v.members {
			v.damaged[m.offset] = true
		}
		return nil
	}
	if err != nil {
		return err
	}
	if t.TarballSize != 0 && t.TarballSize != info.Size {
		v.AddFault(FaultUnreadable, "", fmt.Sprintf("the tarball has %d bytes, the manifest says %d", info.Size, t.TarballSize))
	}
	rc, err := store.Get(ctx, key)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	whole := sha256.New()
	in := &watchedReader{r: rc, told: func(read int64) { v.progress(read, info.Size) }}
	hashed := io.TeeReader(in, whole)
	for _, m := range v.members {
		if m.offset < in.n {
			v.damaged[m.offset] = true // it begins within another one
			continue
		}
		if gap := m.offset - in.n; gap > 0 {
			err = v.readPiece(ctx, in, hashed, outside, gap, ListPart)
		}
		if err == nil {
			err = v.readPiece(ctx, in, hashed, m.offset, m.length, ListPart)
		}
		if err != nil {
			return err
		}
	}
	if err := v.readPiece(ctx, in, hashed, outside, max(info.Size-in.n, 0), List); err != nil {
		return err
	}
	v.Bytes = in.n
	if sum := hex.EncodeToString(whole.Sum(nil)); t.TarballSHA256 != "" && t.TarballSHA256 != sum {
		v.AddFault(FaultDiffers, "", fmt.Sprintf("the SHA-256 of the tarball is %s, the manifest says %s", sum, t.TarballSHA256))
	}
	return nil
}

// readPiece notes the entries of the next n bytes, which lie in the member at an offset. Damage is a
// fault; an error is of the store.
func (v *verifier) readPiece(ctx context.Context, in *watchedReader, r io.Reader, at, n int64, list func(context.Context, io.Reader, Limits, Visitor) error) error {
	from, piece, limits := in.n, io.LimitReader(r, n), v.limits
	if at != outside {
		limits.TotalBytes = 2*limits.EntryBytes + maxMemberBytes
	}
	err := list(ctx, piece, limits, Visitor{
		Entry: func(e Entry) error { return v.addEntry(&e, at) },
		Problem: func(p Problem) {
			kind := FaultExtra
			if errors.Is(p.Err, ErrTooLarge) {
				kind = FaultUnreadable
			}
			v.AddFault(kind, p.Path, p.Err.Error())
		},
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, discardErr := io.Copy(io.Discard, piece); discardErr != nil || in.err != nil {
		return errors.Join(in.err, discardErr)
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
		return err
	}
	v.damaged[at] = true
	v.AddFault(FaultUnreadable, "", fmt.Sprintf("bytes %d to %d of the tarball: %v", from, from+n, err))
	return nil
}

// addEntry notes one entry of the tarball. A second copy is noted under the path of the first.
func (v *verifier) addEntry(e *Entry, at int64) error {
	v.sum.Reset()
	if n, err := io.Copy(v.sum, e.Body); err != nil || n != e.Size {
		return errors.Join(err, fmt.Errorf("%w after %d bytes", io.ErrUnexpectedEOF, n))
	}
	path, what := e.TarName, byte(stored)
	if e.Preferred {
		path, what = strings.Replace(path, "/"+e.Version+preferredSuffix+"/", "/", 1), copied
	}
	if err := v.addRecord(path, what, at, e.Size, v.sum.Sum(nil)); err != nil {
		return &visitError{err}
	}
	return nil
}
