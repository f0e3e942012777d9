package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Compose creates the tarball: metadata/version, the parts in order, tar's end. The store copies
// the parts itself where it can. A tarball that exists already is adopted if every byte of it is
// what would have been written, else ErrDiffers.
func Compose(ctx context.Context, store objectstore.Store, plan Plan) (Result, error) {
	preamble, err := part.Preamble(plan.ModTime)
	if err != nil {
		return Result{}, err
	}
	trailer, err := part.Trailer()
	if err != nil {
		return Result{}, err
	}
	sources := []objectstore.Source{{Data: preamble}}
	pieces := []contentPiece{pieceOf(preamble)}
	size := int64(len(preamble) + len(trailer))
	for _, p := range plan.Parts {
		if p.Size == 0 {
			continue
		}
		sources = append(sources, objectstore.Source{Key: p.Key, Length: p.Size})
		pieces = append(pieces, contentPiece{name: p.Key, size: p.Size, sha256: p.SHA256})
		size += p.Size
	}
	sources = append(sources, objectstore.Source{Data: trailer})
	pieces = append(pieces, pieceOf(trailer))

	key := layout.BackupTarball(plan.Backup)
	info, err := store.Compose(ctx, key, sources)
	if errors.Is(err, objectstore.ErrExists) {
		return Result{Size: size, Adopted: true}, comparePieces(ctx, store, key, pieces)
	}
	if err != nil {
		return Result{}, fmt.Errorf("compose tarball: %w", err)
	}
	if info.Size != size {
		return Result{}, fmt.Errorf("%w: the store composed %d bytes of %s, want %d", ErrDiffers, info.Size, key, size)
	}
	return Result{Size: size}, nil
}

// Create publishes a file under key, once. An object that is there already with the same content is
// adopted, one with other content is ErrDiffers.
func Create(ctx context.Context, store objectstore.Store, key string, f part.File) (adopted bool, err error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return false, fmt.Errorf("publish %s: %w", key, err)
	}
	defer func() { _ = in.Close() }() // read only
	err = store.Create(ctx, key, in, f.Size)
	if errors.Is(err, objectstore.ErrExists) {
		return true, comparePieces(ctx, store, key, []contentPiece{{name: key, size: f.Size, sha256: f.SHA256}})
	}
	if err != nil {
		return false, fmt.Errorf("publish %s: %w", key, err)
	}
	return false, nil
}

// contentPiece is a run of bytes an object should consist of.
type contentPiece struct {
	name   string
	size   int64
	sha256 string // empty: not compared
}

func pieceOf(data []byte) contentPiece {
	sum := sha256.Sum256(data)
	return contentPiece{name: "frame", size: int64(len(data)), sha256: hex.EncodeToString(sum[:])}
}

// comparePieces reads an object and holds it against its pieces.
func comparePieces(ctx context.Context, store objectstore.Reader, key string, pieces []contentPiece) error {
	rc, err := store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("compare %s: %w", key, err)
	}
	defer func() { _ = rc.Close() }()
	for _, p := range pieces {
		h := sha256.New()
		n, err := io.CopyN(h, rc, p.size)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: %s ends %d bytes into %s", ErrDiffers, key, n, p.name)
		}
		if err != nil {
			return fmt.Errorf("compare %s: %w", key, err)
		}
		if p.sha256 != "" && hex.EncodeToString(h.Sum(nil)) != p.sha256 {
			return fmt.Errorf("%w: %s has other bytes than %s", ErrDiffers, key, p.name)
		}
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(rc, 1)); err != nil || n > 0 {
		return errors.Join(fmt.Errorf("%w: %s is longer", ErrDiffers, key), err)
	}
	return nil
}
