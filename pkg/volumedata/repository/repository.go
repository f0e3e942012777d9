// Package repository opens and creates the kopia repositories that hold the data of volumes, in
// Velero 1.18's layout, so that each server restores what the other stored.
//
// A location has one repository for each namespace whose volumes it holds, below kopia/<namespace>/.
// Every client is default@default. A repository has a mark, udmrepo.Repository, once it is set up for
// use; Velero before 1.18 wrote none.
package repository

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/content"
	"github.com/kopia/kopia/repo/format"
	"github.com/kopia/kopia/repo/maintenance"
	"k8s.io/utils/lru"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// formatBlob has the format and the encrypted keys of a repository.
	formatBlob = format.KopiaRepositoryBlobID
	// settingsBlob has encrypted settings of the storage.
	settingsBlob = format.KopiaBlobCfgBlobID
	// markBlob is Velero's mark of a repository that is set up.
	markBlob = "udmrepo.Repository"
	// clientName is the user and the host of every client (Velero 1.17 and later).
	clientName = "default"
	// smallBlob limits what is read of formatBlob and markBlob.
	smallBlob = 1 << 20
)

// metadataShare is which part of the cache holds directories; the rest holds files (Velero 1.18).
const metadataShare = 5

// Options is what opening takes.
type Options struct {
	// Namespace is the namespace of the volumes, on the cluster that backed them up.
	Namespace string
	// Password is the repository's, as the key repository-password of the Secret
	// velero-repo-credentials has it. White space around it does not count.
	Password string
	// Dir is a directory of this process alone, for the client's configuration and cache.
	Dir string
	// CacheBytes bounds the cache, besides the index. 0 keeps no cache.
	CacheBytes int64
	// ReadOnly refuses writes.
	ReadOnly bool
	// Fatal is called if the repository becomes unusable while it is open, because another program
	// upgrades its format. It must not be nil.
	Fatal func(error)
	// Now replaces the clock, in tests; nil is the real one.
	Now func() time.Time
}

// Repository is an open repository. Its methods may be called concurrently.
type Repository struct {
	repo.Repository
	storage *objectStorage
	// Marked reports whether the repository has Velero's mark.
	Marked bool
}

// Open opens the repository of a location, whose store it does not close. Errors wrap the sentinels of
// this package, or are a *StoreError.
func Open(ctx context.Context, location objectstore.Store, o Options) (*Repository, error) {
	s, err := newStorage(location, o)
	if err != nil {
		return nil, err
	}
	return s.openClient(ctx, o)
}

// Create is Open of a repository that is created if there is none, and set up if nobody has done so.
// Any number of concurrent calls make one repository.
func Create(ctx context.Context, location objectstore.Store, o Options) (*Repository, error) {
	s, err := newStorage(location, o)
	if err != nil {
		return nil, err
	}
	if err := s.createFormat(ctx, trimPassword(o.Password)); err != nil {
		return nil, err
	}
	r, err := s.openClient(ctx, o)
	if err != nil || r.Marked {
		return r, err
	}
	if err := r.setUpMaintenance(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the repository: %w", err), r.Close(ctx))
	}
	return r, nil
}

func newStorage(location objectstore.Store, o Options) (*objectStorage, error) {
	prefixed, err := objectstore.WithPrefix(location, layout.KopiaDir+o.Namespace+"/")
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", o.Namespace, err)
	}
	windows := &packWindows{kept: lru.New(windowsKept), reads: lru.New(windowsCounted)}
	return &objectStorage{store: prefixed, id: uuid.NewString(), readOnly: o.ReadOnly, windows: windows}, nil
}

// createFormat creates the repository unless there is one.
func (s *objectStorage) createFormat(ctx context.Context, password string) error {
	switch _, err := s.readFormat(ctx); {
	case err == nil:
		return nil
	case !errors.Is(err, ErrAbsent):
		return err
	}
	if password == "" {
		return fmt.Errorf("%w: it is empty", ErrPassword)
	}
	err := repo.Initialize(ctx, &creationStorage{objectStorage: s}, &repo.NewRepositoryOptions{BlockFormat: format.ContentFormat{EnablePasswordChange: true}}, password)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*StoreError](err); !ok {
		if _, absent := s.readFormat(ctx); absent == nil {
			return nil // another process created it meanwhile, for which kopia has several errors
		}
	}
	return fmt.Errorf("create the repository: %w", err)
}

// readFormat reads and checks formatBlob.
func (s *objectStorage) readFormat(ctx context.Context) (*format.KopiaRepositoryJSON, error) {
	_, err := s.GetMetadata(ctx, formatBlob)
	if errors.Is(err, blob.ErrBlobNotFound) {
		err = s.absentError(ctx)
	}
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, s.store, formatBlob, smallBlob)
	if err != nil {
		return nil, s.callError(err)
	}
	f, err := format.ParseKopiaRepositoryJSON(data)
	switch {
	case err != nil || len(f.UniqueID) == 0:
		return nil, fmt.Errorf("%w: %s is not what kopia writes", ErrDamaged, formatBlob)
	case f.EncryptionAlgorithm != format.DefaultFormatEncryption:
		return nil, fmt.Errorf("%w: %s is encrypted with %q", ErrFormat, formatBlob, f.EncryptionAlgorithm)
	}
	return f, nil
}

// trimPassword drops what a Secret made from a file has around the password.
func trimPassword(p string) string { return strings.TrimSpace(p) }

// absentError returns ErrAbsent if the prefix is empty, ErrForeign if it holds objects without kopia.repository, and nil
// if kopia.repository exists by now. Several movers may create a repository concurrently; each writes kopia.repository
// before any other object.
func (s *objectStorage) absentError(ctx context.Context) error {
	found := ""
	err := s.ListBlobs(ctx, "", func(m blob.Metadata) error {
		found = string(m.BlobID)
		return errFound
	})
	switch {
	case errors.Is(err, errFound):
		if _, err := s.GetMetadata(ctx, formatBlob); !errors.Is(err, blob.ErrBlobNotFound) {
			return err
		}
		return fmt.Errorf("%w: %s", ErrForeign, found)
	case err != nil:
		return err
	}
	return ErrAbsent
}

// errFound ends a list at the first object, or a directory at an entry.
var errFound = errors.New("found")

// openClient opens the repository, and looks at its mark.
func (s *objectStorage) openClient(ctx context.Context, o Options) (*Repository, error) {
	f, err := s.readFormat(ctx)
	if err != nil {
		return nil, err
	}
	marked, err := s.readMark(ctx, f.UniqueID)
	if err != nil {
		return nil, err
	}
	config, err := s.writeConfig(o)
	if err != nil {
		return nil, fmt.Errorf("configuration of the client: %w", err)
	}
	opened.Store(s.id, s)
	client, err := repo.Open(ctx, config, trimPassword(o.Password), &repo.Options{DoNotWaitForUpgrade: true, DisableRepositoryLog: true, OnFatalError: o.Fatal, TimeNowFunc: o.Now})
	if err != nil {
		s.forgetClient()
		return nil, openError(ctx, err)
	}
	return &Repository{Repository: client, storage: s, Marked: marked}, nil
}

func (s *objectStorage) forgetClient() { opened.Delete(s.id) }

// writeConfig writes the client's configuration and returns its path.
func (s *objectStorage) writeConfig(o Options) (string, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return "", err
	}
	info := s.ConnectionInfo()
	config := repo.LocalConfig{
		Storage:       &info,
		Caching:       &content.CachingOptions{},
		ClientOptions: repo.ClientOptions{Hostname: clientName, Username: clientName, ReadOnly: o.ReadOnly, FormatBlobCacheDuration: -1},
	}
	if o.CacheBytes > 0 {
		metadata := o.CacheBytes / metadataShare
		config.Caching = &content.CachingOptions{
			CacheDirectory:        filepath.Join(dir, "cache"),
			ContentCacheSizeBytes: (o.CacheBytes - metadata) * 4 / 5, ContentCacheSizeLimitBytes: o.CacheBytes - metadata,
			MetadataCacheSizeBytes: metadata * 4 / 5, MetadataCacheSizeLimitBytes: metadata,
		}
	}
	data, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, s.id+".config")
	return path, os.WriteFile(path, data, 0o600)
}

// repositoryMark is the content of markBlob.
type repositoryMark struct {
	UniqueID string `json:"uniqueID"`
}

// readMark reports whether the repository has Velero's mark. The mark of another repository means that
// kopia.repository was replaced.
func (s *objectStorage) readMark(ctx context.Context, uniqueID []byte) (bool, error) {
	data, err := objectstore.ReadAll(ctx, s.store, markBlob, smallBlob)
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.callError(err)
	}
	var m repositoryMark
	if err := json.Unmarshal(data, &m); err != nil || m.UniqueID != base64.StdEncoding.EncodeToString(uniqueID) {
		return false, fmt.Errorf("%w: %s is of another repository than %s", ErrDamaged, markBlob, formatBlob)
	}
	return true, nil
}

// setUpMaintenance makes default@default the owner of maintenance and writes the mark.
func (r *Repository) setUpMaintenance(ctx context.Context) error {
	err := r.Write(ctx, "set up", func(ctx context.Context, w repo.RepositoryWriter) error {
		p, err := maintenance.GetParams(ctx, w)
		if err != nil || p.Owner == clientName+"@"+clientName {
			return err
		}
		p.Owner = clientName + "@" + clientName
		return maintenance.SetParams(ctx, w, p)
	})
	if err != nil {
		return err
	}
	f, err := r.storage.readFormat(ctx)
	if err != nil {
		return err
	}
	data, err := json.Marshal(repositoryMark{UniqueID: base64.StdEncoding.EncodeToString(f.UniqueID)})
	if err != nil {
		return err
	}
	if err := objectstore.PutBytes(ctx, r.storage.store, markBlob, data); err != nil {
		return r.storage.callError(err)
	}
	r.Marked = true
	return nil
}

// Write runs fn with a writer. What it wrote is durable and seen by others if the error is nil.
func (r *Repository) Write(ctx context.Context, purpose string, fn func(ctx context.Context, w repo.RepositoryWriter) error) error {
	return repo.WriteSession(ctx, r.Repository, repo.WriteSessionOptions{Purpose: purpose}, fn)
}

// LastFailure is the error of the newest write to the object store that failed, nil if there is none:
// kopia keeps the errors of checkpoints to itself.
func (r *Repository) LastFailure() error { return r.storage.lastFailure() }

// Close ends the client. The store stays open.
func (r *Repository) Close(ctx context.Context) error {
	defer r.storage.forgetClient()
	return r.Repository.Close(ctx)
}
