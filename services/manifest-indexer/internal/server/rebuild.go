package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/part"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// parallelRebuilds is how many manifests are made at once; each reads a whole tarball.
	parallelRebuilds = 2
	// maxQueued is how many wait for that.
	maxQueued = 100
	// maxKeptBytes bounds the rebuilt manifests in the work dir.
	maxKeptBytes = 512 << 20
	// maxDamaged bounds the backups that are known to have a damaged manifest, or a damaged tarball.
	maxDamaged = 10_000
	// failurePeriod is how long a tarball of which no manifest can be made is not read again.
	failurePeriod = 5 * time.Minute
)

// RebuilderConfig is what a Rebuilder needs.
type RebuilderConfig struct {
	Reader    client.Reader // uncached
	Namespace string
	Opener    Opener
	// WorkDir holds the manifests that cannot be stored beside their backups.
	WorkDir string
	Log     *slog.Logger
	Clock   clock.PassiveClock
}

// Rebuilder makes the manifests of backups that have none, or a damaged one: each once, however many
// requests need it. A request that ends does not end the work.
type Rebuilder struct {
	RebuilderConfig
	queue chan *rebuild

	mu      sync.Mutex
	pending map[types.UID]*rebuild
	failed  map[types.UID]*rebuild // for failurePeriod: those of damaged tarballs
	kept    keptManifests
	damaged map[types.UID]bool // backups whose own manifest turned out damaged while it was read
}

// rebuild is one manifest that is being made.
type rebuild struct {
	backup *velerov1.Backup
	size   int64 // of the tarball
	done   chan struct{}
	err    error     // set before done is closed
	ended  time.Time // likewise
}

// NewRebuilder returns a Rebuilder, whose work Run does.
func NewRebuilder(c RebuilderConfig) *Rebuilder {
	return &Rebuilder{
		RebuilderConfig: c, queue: make(chan *rebuild, maxQueued), pending: map[types.UID]*rebuild{}, failed: map[types.UID]*rebuild{},
		damaged: map[types.UID]bool{},
	}
}

// Run makes the manifests that are asked for until ctx ends.
func (r *Rebuilder) Run(ctx context.Context) error {
	var group errgroup.Group
	for range parallelRebuilds {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case b := <-r.queue:
					r.endRebuild(b, r.makeManifest(ctx, b.backup))
				}
			}
		})
	}
	return group.Wait()
}

func (r *Rebuilder) endRebuild(b *rebuild, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.err, b.ended = err, r.Clock.Now()
	delete(r.pending, b.backup.UID)
	delete(r.failed, b.backup.UID)
	if errors.Is(err, tarball.ErrCorrupt) || errors.Is(err, tarball.ErrTooLarge) {
		if len(r.failed) >= maxDamaged {
			clear(r.failed)
		}
		r.failed[b.backup.UID] = b
	}
	close(b.done)
}

// openManifest returns the rebuilt manifest of a backup whose tarball has a size; it is made where there is none.
func (r *Rebuilder) openManifest(ctx context.Context, store objectstore.Reader, backup *velerov1.Backup, size int64) (*openManifestFile, error) {
	m, err := r.openExisting(ctx, store, backup, size)
	if m != nil || err != nil {
		return m, err
	}
	if err := r.awaitManifest(ctx, backup, size); err != nil {
		return nil, err
	}
	m, err = r.openExisting(ctx, store, backup, size)
	if m == nil && err == nil {
		err = fmt.Errorf("backup %q: its tarball changed while the manifest was made of it: %w", backup.Name, objectstore.ErrNotFound)
	}
	return m, err
}

// openExisting returns nil where no manifest was made, or one that does not fit.
func (r *Rebuilder) openExisting(ctx context.Context, store objectstore.Reader, backup *velerov1.Backup, size int64) (*openManifestFile, error) {
	r.mu.Lock()
	file, err := r.kept.openFile(backup.UID)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if file != nil {
		info, err := file.Stat()
		var m *manifest.Reader
		if err == nil {
			m, err = manifest.Open(ctx, fileRanges{file}, info.Size())
		}
		if err == nil && m.Trailer().TarballSize == size {
			return &openManifestFile{Reader: m, file: file, rebuilt: true}, nil
		}
		return nil, file.Close() // it is made anew
	}
	m, err := tarball.OpenRebuilt(ctx, store, backup.Name, size)
	switch {
	case err == nil:
		return &openManifestFile{Reader: m, rebuilt: true}, nil
	case errors.Is(err, objectstore.ErrNotFound), errors.Is(err, manifest.ErrCorrupt), errors.Is(err, tarball.ErrMismatch):
		return nil, nil //nolint:nilnil // it is made anew
	}
	return nil, err
}

// awaitManifest has the manifest made and waits for it as long as ctx lasts.
func (r *Rebuilder) awaitManifest(ctx context.Context, backup *velerov1.Backup, size int64) error {
	b := r.queueRebuild(backup, size)
	if b == nil {
		return fmt.Errorf("backup %q: too many manifests are being made from tarballs, ask again later", backup.Name)
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		err := fmt.Errorf("backup %q: its manifest is still being made from the tarball, ask again later: %w", backup.Name, context.Cause(ctx))
		return errgrpc.WithReason(err, errgrpc.ReasonStillWorking, map[string]string{"backup": backup.Name})
	}
}

// queueRebuild returns the work on a manifest, which begins where nobody has asked for it, unless it has just
// failed; nil if there is too much of it.
func (r *Rebuilder) queueRebuild(backup *velerov1.Backup, size int64) *rebuild {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, known := r.pending[backup.UID]
	if known {
		return b
	}
	if b = r.failed[backup.UID]; b != nil && b.size == size && r.Clock.Since(b.ended) < failurePeriod {
		return b
	}
	b = &rebuild{backup: backup, size: size, done: make(chan struct{})}
	select {
	case r.queue <- b:
		r.pending[backup.UID] = b
		return b
	default:
		return nil
	}
}

// makeManifest makes the manifest and stores it beside the backup, or keeps it where that is refused.
func (r *Rebuilder) makeManifest(ctx context.Context, backup *velerov1.Backup) (err error) {
	store, err := r.Opener.OpenName(ctx, backup.Spec.StorageLocation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	h := manifest.Header{Backup: backup.Name, UID: string(backup.UID)}
	if t := backup.Status.StartTimestamp; t != nil {
		h.StartTime = t.UTC()
	}
	made, passed, err := tarball.RebuildManifest(ctx, store, h, r.WorkDir, tarball.Limits{})
	if err != nil {
		return err
	}
	r.Log.Info("Manifest was made from the tarball", "backup", backup.Name, "entriesPassed", passed)
	err = r.storeManifest(ctx, store, backup, made)
	if err == nil {
		return os.Remove(made.Path)
	}
	if !errors.Is(err, objectstore.ErrReadOnly) && !errors.Is(err, objectstore.ErrAccess) {
		r.Log.Warn("Failed to store a manifest; it is kept in the work dir", "backup", backup.Name, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.addFile(backup.UID, made)
	return nil
}

// storeManifest puts the manifest beside the backup, unless the backup goes: a deletion that has listed
// the directory would leave the manifest behind.
func (r *Rebuilder) storeManifest(ctx context.Context, store objectstore.Store, backup *velerov1.Backup, made part.File) error {
	file, err := os.Open(made.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	key := layout.BackupRebuiltManifest(backup.Name)
	if err := store.Put(ctx, key, file, made.Size); err != nil {
		return err
	}
	var now velerov1.Backup
	err = r.Reader.Get(ctx, client.ObjectKeyFromObject(backup), &now)
	if err == nil && now.UID == backup.UID && now.DeletionTimestamp == nil && now.Status.Phase != velerov1.BackupPhaseDeleting {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err // the manifest stays: the backup probably does too
	}
	return errors.Join(fmt.Errorf("backup %q is being deleted", backup.Name), store.Delete(ctx, key))
}

// markDamaged notes that the backup's own manifest is damaged where it was read.
func (r *Rebuilder) markDamaged(backup *velerov1.Backup) {
	r.Log.Warn("Manifest of a backup is damaged; another one is made from the tarball", "backup", backup.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.damaged) >= maxDamaged {
		clear(r.damaged)
	}
	r.damaged[backup.UID] = true
}

func (r *Rebuilder) isDamaged(backup *velerov1.Backup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.damaged[backup.UID]
}
