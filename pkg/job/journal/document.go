package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

var (
	// ErrDocumentDamaged means that a document exists and cannot be understood: it is no JSON of its type, too
	// large, or refused by Kind.Check.
	ErrDocumentDamaged = errors.New("damaged")
	// ErrDocumentTooLarge means that a document was not written, since no reader would take it.
	ErrDocumentTooLarge = errors.New("too large")
)

// DocumentKind is what documents of one kind have in common. Safe for concurrent use.
type DocumentKind[T any] struct {
	// Name is what errors call a document.
	Name string
	// MaxBytes bounds a document, MaxDecoded what it takes in memory, in bytes.
	MaxBytes   int64
	MaxDecoded int
}

// Create makes value the document under key, or returns the one that was created before, see Read.
func (k *DocumentKind[T]) Create(ctx context.Context, store objectstore.Store, key string, value T, check func(*T) error) (T, error) {
	err := k.CreateNew(ctx, store, key, value)
	if errors.Is(err, objectstore.ErrExists) {
		return k.Read(ctx, store, key, check)
	}
	if err != nil {
		var none T
		return none, err
	}
	return value, nil
}

// CreateNew is Create whose error wraps objectstore.ErrExists where there is one.
func (k *DocumentKind[T]) CreateNew(ctx context.Context, store objectstore.Writer, key string, value T) error {
	data, err := json.Marshal(&value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", k.Name, err)
	}
	if int64(len(data)) > k.MaxBytes {
		return fmt.Errorf("write %s: %w: %d bytes, at most %d are read", k.Name, ErrDocumentTooLarge, len(data), k.MaxBytes)
	}
	if err := objectstore.CreateBytes(ctx, store, key, data); err != nil {
		return fmt.Errorf("write %s: %w", k.Name, err)
	}
	return nil
}

// Read returns the document under key. The error wraps objectstore.ErrNotFound where there is none,
// and ErrDocumentDamaged if it is not understood, as for every error of check.
func (k *DocumentKind[T]) Read(ctx context.Context, store objectstore.Reader, key string, check func(*T) error) (T, error) {
	var none, value T
	data, err := objectstore.ReadAll(ctx, store, key, k.MaxBytes)
	if errors.Is(err, objectstore.ErrSize) {
		return none, fmt.Errorf("%s: %w: %w", k.Name, ErrDocumentDamaged, err)
	}
	if err != nil {
		return none, fmt.Errorf("read %s: %w", k.Name, err)
	}
	err = jsonlimit.Unmarshal(data, &value, k.MaxDecoded)
	if err == nil {
		err = check(&value)
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w: %w", k.Name, ErrDocumentDamaged, err)
	}
	return value, nil
}
