package tarball

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/archive/assembly"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// RebuildManifest makes a manifest from the tarball of any server, in one pass and in bounded memory,
// as a file of dir that the caller removes. It does not hold where objects lie in the tarball: offset
// and length of its items are 0. Passed are entries of the tarball that are no objects.
func RebuildManifest(ctx context.Context, store objectstore.Reader, h manifest.Header, dir string, l Limits) (_ part.File, passed int, err error) {
	work, err := os.MkdirTemp(dir, "manifest-*")
	if err != nil {
		return part.File{}, 0, fmt.Errorf("rebuild manifest: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	rc, err := store.Get(ctx, layout.BackupTarball(h.Backup))
	if err != nil {
		return part.File{}, 0, fmt.Errorf("tarball of backup %s: %w", h.Backup, err)
	}
	defer func() { _ = rc.Close() }()
	h.Foreign = true
	var found problems
	made, err := listIntoManifest(ctx, rc, h, work, l.withDefaults(), &found)
	if err != nil {
		return part.File{}, 0, fmt.Errorf("tarball of backup %s: %w", h.Backup, err)
	}
	to := filepath.Join(dir, filepath.Base(work)+".json.gz")
	if err := os.Rename(made.Path, to); err != nil {
		return part.File{}, 0, fmt.Errorf("rebuild manifest: %w", err)
	}
	made.Path = to
	return made, found.count, nil
}

func listIntoManifest(ctx context.Context, r io.Reader, h manifest.Header, dir string, l Limits, found *problems) (part.File, error) {
	w, err := part.NewWriter(part.Config{Dir: dir, IndexOnly: true})
	if err != nil {
		return part.File{}, err
	}
	defer w.Discard()
	sum, counted := sha256.New(), &watchedReader{r: r}
	c := copier{w: w, all: true, found: found}
	if err := List(ctx, io.TeeReader(counted, sum), l, Visitor{Entry: c.copyEntry, Problem: found.addProblem}); err != nil {
		return part.File{}, err
	}
	sealed, err := w.Seal()
	if err != nil {
		return part.File{}, err
	}
	trailer := manifest.Trailer{TarballSize: counted.n, TarballSHA256: hex.EncodeToString(sum.Sum(nil))}
	ref := assembly.PartRef{SidecarKey: filepath.Base(sealed.Sidecar.Path)}
	return assembly.Index(ctx, localFiles{dir}, []assembly.PartRef{ref}, h, trailer, dir)
}

// OpenRebuilt opens the manifest in the bucket that RebuildManifest made of the backup's tarball, whose
// size it must fit, else ErrMismatch.
func OpenRebuilt(ctx context.Context, store objectstore.Reader, backup string, size int64) (*manifest.Reader, error) {
	r, err := openManifest(ctx, store, backup, layout.BackupRebuiltManifest(backup))
	if err != nil {
		return nil, err
	}
	if s := r.Trailer().TarballSize; s != size {
		return nil, fmt.Errorf("%w: the tarball of backup %s has %d bytes, its rebuilt manifest says %d", ErrMismatch, backup, size, s)
	}
	return r, nil
}

// errFound ends a list.
var errFound = errors.New("found")

// ReadItem returns the body of one item of the backup's manifest, checked against its hash: from one range
// of the tarball or, where the manifest holds no places, by reading the tarball as far as the item.
func ReadItem(ctx context.Context, store objectstore.Reader, m *manifest.Reader, backup string, item manifest.Item, l Limits) ([]byte, error) {
	if item.Length != 0 {
		src, err := WithManifest(ctx, store, backup, m, l)
		if err != nil {
			return nil, err
		}
		defer func() { _ = src.Close() }()
		return src.Read(ctx, item)
	}
	rc, err := store.Get(ctx, layout.BackupTarball(backup))
	if err != nil {
		return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
	}
	defer func() { _ = rc.Close() }()
	var body []byte
	err = List(ctx, rc, l, Visitor{Entry: func(e Entry) error {
		if e.TarName != item.Path || e.Size != item.Size {
			return nil
		}
		body = make([]byte, e.Size)
		if _, err := io.ReadFull(e.Body, body); err != nil {
			return err
		}
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != item.SHA256 {
			return nil // an object that was stored twice: the later copy counts
		}
		return &visitError{errFound}
	}})
	switch {
	case errors.Is(err, errFound):
		return body, nil
	case err == nil:
		err = fmt.Errorf("%w: no entry %s with the size and SHA-256 of the manifest", ErrMismatch, item.Path)
	}
	return nil, fmt.Errorf("tarball of backup %s: %w", backup, err)
}
