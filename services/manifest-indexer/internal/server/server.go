// Package server is the gRPC side of manifest-indexer: it answers from manifests in the bucket. It
// answers ServerStatusRequests too.
package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	manifestv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	"github.com/holdfast-io/holdfast/services/manifest-indexer/internal/search"
)

// reasonNoManifest is the reason of NOT_FOUND for a backup that has no manifest.
const reasonNoManifest = "MANIFEST_NOT_FOUND"

// errNoTarball means that a backup has neither a manifest nor a tarball.
var errNoTarball = errors.New("the tarball is missing")

// Opener opens a location by name; the caller closes the store.
type Opener interface {
	OpenName(ctx context.Context, name string) (objectstore.Store, error)
}

// Server implements ManifestService. Errors are Go errors that the gRPC server's interceptor
// translates.
type Server struct {
	manifestv1.UnimplementedManifestServiceServer
	Reader    client.Reader
	Namespace string
	Opener    Opener
	// Rebuilder makes the manifests that are missing.
	Rebuilder *Rebuilder
	// Index answers what is about all backups.
	Index *search.Indexer
	// Clock says when a long call tells how far it is.
	Clock clock.PassiveClock
	// Graphs bounds how many calls have a graph at once: that of a large backup takes much of the memory that there is.
	Graphs *semaphore.Weighted
}

// GetManifest implements ManifestService.
func (s *Server) GetManifest(ctx context.Context, req *manifestv1.GetManifestRequest) (_ *manifestv1.GetManifestResponse, err error) {
	m, err := s.openBackup(ctx, req.GetBackup())
	if err != nil {
		return nil, err
	}
	defer m.close(&err)
	header := m.Header()
	resp := &manifestv1.GetManifestResponse{Backup: header.Backup, BackupUid: header.UID, FormatVersion: header.FormatVersion}
	resources := map[string]string{}
	for _, k := range m.Kinds() {
		group, version, kind, _ := manifest.SplitKindName(k.Kind)
		resources[k.Kind] = k.Plural()
		resp.Items += k.Items
		resp.Kinds = append(resp.Kinds, &manifestv1.KindCount{Group: group, Version: version, Kind: kind, Resource: k.Plural(), Items: k.Items})
	}
	for _, c := range m.Trailer().Cuts {
		group, _, _, _ := manifest.SplitKindName(c.Kind)
		resp.Cuts = append(resp.Cuts, &manifestv1.Cut{
			Group: group, Resource: resources[c.Kind], FirstKey: c.From, LastKey: c.To, Revision: c.Revision,
		})
	}
	if req.GetWithNamespaces() {
		counts, err := m.CountNamespaces(ctx)
		if err != nil {
			return nil, damagedError(err)
		}
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			resp.Namespaces = append(resp.Namespaces, &manifestv1.NamespaceCount{Namespace: name, Items: counts[name]})
		}
	}
	return resp, nil
}

// openManifestFile is one manifest and the store it is read from.
type openManifestFile struct {
	*manifest.Reader
	backup  string
	object  *velerov1.Backup
	store   objectstore.Store
	file    *os.File // of a rebuilt manifest that is kept in the work dir, else nil
	rebuilt bool
	server  *Server
}

// openBackup finds the backup's location and opens its manifest, or the one that stands in for it.
func (s *Server) openBackup(ctx context.Context, name string) (*openManifestFile, error) {
	backup := &velerov1.Backup{}
	if err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, backup); err != nil {
		return nil, fmt.Errorf("backup %q: %w", name, err)
	}
	if backup.Spec.StorageLocation == "" {
		return nil, noManifest(name)
	}
	store, err := s.Opener.OpenName(ctx, backup.Spec.StorageLocation)
	if err != nil {
		return nil, err
	}
	m, err := s.openManifest(ctx, store, backup)
	if err != nil {
		return nil, errors.Join(codedError(err), store.Close())
	}
	m.backup, m.object, m.store, m.server = name, backup, store, s
	return m, nil
}

func (s *Server) openManifest(ctx context.Context, store objectstore.Store, backup *velerov1.Backup) (*openManifestFile, error) {
	if !s.Rebuilder.isDamaged(backup) {
		reader, err := tarball.OpenManifest(ctx, store, backup.Name)
		switch {
		case err == nil:
			return &openManifestFile{Reader: reader}, nil
		case errors.Is(err, manifest.ErrCorrupt):
			s.Rebuilder.markDamaged(backup)
		case !errors.Is(err, objectstore.ErrNotFound):
			return nil, err
		}
	}
	if !backup.Status.Phase.Terminal() || backup.Status.Phase == velerov1.BackupPhaseDeleting {
		return nil, noManifest(backup.Name) // what is in the bucket may change
	}
	info, err := store.Stat(ctx, layout.BackupTarball(backup.Name))
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", noManifest(backup.Name), errNoTarball)
	}
	if err != nil {
		return nil, fmt.Errorf("tarball of backup %q: %w", backup.Name, err)
	}
	return s.Rebuilder.openManifest(ctx, store, backup, info.Size)
}

// codedError gives an error of the store or of what is in it the code that callers see.
func codedError(err error) error {
	switch {
	case errors.Is(err, errgrpc.ErrNotFound), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, manifest.ErrCorrupt), errors.Is(err, tarball.ErrCorrupt), errors.Is(err, tarball.ErrTooLarge):
		return fmt.Errorf("%w: %w", errgrpc.ErrCorrupt, err)
	}
	return fmt.Errorf("%w: %w", errgrpc.ErrUnavailable, err)
}

func noManifest(backup string) error {
	return errgrpc.WithReason(fmt.Errorf("backup %q has no manifest: %w", backup, errgrpc.ErrNotFound), reasonNoManifest,
		map[string]string{"backup": backup})
}

// close ends a call that read this manifest and no other one.
func (m *openManifestFile) close(err *error) {
	m.markDamage(*err)
	*err = errors.Join(*err, m.release())
}

// markDamage sees to it that a manifest that turned out damaged is not read again.
func (m *openManifestFile) markDamage(err error) {
	if errors.Is(err, manifest.ErrCorrupt) && !m.rebuilt {
		m.server.Rebuilder.markDamaged(m.object)
	}
}

// release closes the store and the file.
func (m *openManifestFile) release() error {
	err := m.store.Close()
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	return err
}

func damagedError(err error) error {
	if errors.Is(err, tarball.ErrCorrupt) || errors.Is(err, tarball.ErrMismatch) || errors.Is(err, manifest.ErrCorrupt) {
		return fmt.Errorf("%w: %w", errgrpc.ErrCorrupt, err)
	}
	return err
}
