package itemset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// FetchSpool copies an item spool from the bucket into dir and returns where it is. The error wraps
// journal.ErrCorrupt if it has another size or SHA-256 than in its record.
func FetchSpool(ctx context.Context, store objectstore.Reader, dir, key string, size int64, sum string) (path string, err error) {
	body, err := store.Get(ctx, key)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	file, err := os.CreateTemp(dir, "held-*")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, hash), body)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(file.Name()))
	}
	if n != size || hex.EncodeToString(hash.Sum(nil)) != sum {
		return "", errors.Join(fmt.Errorf("%w: it has other bytes than its record says", journal.ErrCorrupt), os.Remove(file.Name()))
	}
	return file.Name(), nil
}
