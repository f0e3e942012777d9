package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kopia/kopia/repo/blob"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// storageType names this package's storage in kopia's registry of storages.
const storageType = "holdfast-objectstore"

// storageConnection is how the configuration of a kopia client names an open storage of this process. No
// credentials get into that file.
type storageConnection struct {
	ID string `json:"id"`
}

// opened are the storages of this process by storageConnection.ID.
var opened sync.Map

func init() { //nolint:gochecknoinits // kopia's registry has no lock, so it is filled before anything runs
	blob.AddSupportedStorage(storageType, storageConnection{}, func(_ context.Context, c *storageConnection, _ bool) (blob.Storage, error) {
		found, ok := opened.Load(c.ID)
		if !ok {
			return nil, fmt.Errorf("storage %q is not open in this process", c.ID)
		}
		return found.(*objectStorage), nil
	})
}

// objectStorage is an objectstore.Store as kopia's blob.Storage. What kopia requires of one is what a Store
// promises: whole blobs or none, visible as soon as they are written, and atomic creation. Calls are not
// repeated here.
type objectStorage struct {
	blob.DefaultProviderImplementation
	store    objectstore.Store
	id       string
	readOnly bool
	windows  *packWindows

	mu     sync.Mutex
	failed error // of the newest write that failed
}

var _ blob.Storage = (*objectStorage)(nil)

// GetBlob implements blob.Reader.
func (s *objectStorage) GetBlob(ctx context.Context, id blob.ID, offset, length int64, out blob.OutputBuffer) error {
	out.Reset()
	if offset < 0 {
		return fmt.Errorf("%w: %s from %d", blob.ErrInvalidRange, id, offset)
	}
	if length < 0 {
		offset = 0
	}
	if w := s.windows.findWindow(id, offset, length); w != nil {
		switch data, err := w.cutRange(ctx, s.store, id, offset, length); {
		case err != nil:
			return s.callError(err)
		case data != nil:
			_, err = out.Write(data)
			return err
		}
	}
	rc, err := s.store.GetRange(ctx, string(id), offset, length)
	if err != nil {
		return s.callError(err)
	}
	_, err = io.Copy(out, rc)
	if err = errors.Join(err, rc.Close()); err != nil {
		return s.callError(err)
	}
	return blob.EnsureLengthExactly(out.Length(), length)
}

// GetMetadata implements blob.Reader.
func (s *objectStorage) GetMetadata(ctx context.Context, id blob.ID) (blob.Metadata, error) {
	info, err := s.store.Stat(ctx, string(id))
	if err != nil {
		return blob.Metadata{}, s.callError(err)
	}
	return blobMetadata(info)
}

// ListBlobs implements blob.Lister.
func (s *objectStorage) ListBlobs(ctx context.Context, prefix blob.ID, fn func(blob.Metadata) error) error {
	var stopped error // by fn
	err := s.store.List(ctx, string(prefix), func(info objectstore.Info) error {
		var m blob.Metadata
		if m, stopped = blobMetadata(info); stopped == nil {
			stopped = fn(m)
		}
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return s.callError(err)
}

// blobMetadata refuses objects without a time: kopia takes blobs of the distant past for unused.
func blobMetadata(info objectstore.Info) (blob.Metadata, error) {
	if info.ModTime.IsZero() {
		return blob.Metadata{}, ErrNoTimes
	}
	return blob.Metadata{BlobID: blob.ID(info.Key), Length: info.Size, Timestamp: info.ModTime}, nil
}

// PutBlob implements blob.Storage.
func (s *objectStorage) PutBlob(ctx context.Context, id blob.ID, data blob.Bytes, opts blob.PutOptions) (err error) {
	switch {
	case opts.HasRetentionOptions():
		return fmt.Errorf("%w: object lock", blob.ErrUnsupportedPutBlobOption)
	case !opts.SetModTime.IsZero():
		return blob.ErrSetTimeUnsupported
	}
	defer func() {
		if err != nil && !errors.Is(err, blob.ErrBlobAlreadyExists) {
			s.mu.Lock()
			s.failed = err
			s.mu.Unlock()
		}
	}()
	put := s.store.Put
	if opts.DoNotRecreate {
		put = s.store.Create
	}
	r := data.Reader()
	err = put(ctx, string(id), r, int64(data.Length()))
	_ = r.Close() // has nothing to flush
	if err != nil || opts.GetModTime == nil {
		return s.callError(err)
	}
	m, err := s.GetMetadata(ctx, id)
	*opts.GetModTime = m.Timestamp
	return err
}

// DeleteBlob implements blob.Storage; an absent blob is success.
func (s *objectStorage) DeleteBlob(ctx context.Context, id blob.ID) error {
	s.windows.kept.Clear()
	return s.callError(s.store.Delete(ctx, string(id)))
}

// ConnectionInfo implements blob.Reader.
func (s *objectStorage) ConnectionInfo() blob.ConnectionInfo {
	return blob.ConnectionInfo{Type: storageType, Config: &storageConnection{ID: s.id}}
}

// DisplayName implements blob.Reader.
func (s *objectStorage) DisplayName() string { return "Holdfast object store" }

// IsReadOnly implements blob.Storage.
func (s *objectStorage) IsReadOnly() bool { return s.readOnly }

// lastFailure is the error of the newest write that failed, nil if there is none.
func (s *objectStorage) lastFailure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// callError turns an error of the store into one that kopia understands.
func (s *objectStorage) callError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objectstore.ErrNotFound):
		return fmt.Errorf("%w: %w", blob.ErrBlobNotFound, err)
	case errors.Is(err, objectstore.ErrExists):
		return fmt.Errorf("%w: %w", blob.ErrBlobAlreadyExists, err)
	}
	return &StoreError{Err: err}
}

// creationStorage is an objectStorage while a repository is created: kopia.repository, which has the keys of the
// repository, is created if absent, so that of several creators one wins. kopia.blobcfg is encrypted
// with a key of the same creator and is written after it; a repository without one is whole.
type creationStorage struct {
	*objectStorage
	settings []byte // of kopia.blobcfg
}

func (c *creationStorage) PutBlob(ctx context.Context, id blob.ID, data blob.Bytes, opts blob.PutOptions) error {
	switch id {
	case settingsBlob:
		var b bytes.Buffer
		_, err := data.WriteTo(&b)
		c.settings = b.Bytes()
		return err
	case formatBlob:
		opts.DoNotRecreate = true
		if err := c.objectStorage.PutBlob(ctx, id, data, opts); err != nil || c.settings == nil {
			return err
		}
		return c.callError(objectstore.PutBytes(ctx, c.store, settingsBlob, c.settings))
	}
	return c.objectStorage.PutBlob(ctx, id, data, opts)
}
