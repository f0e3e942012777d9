package finalize

import (
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
)

const (
	// samples is how many objects are read back, of as many kinds as there are.
	samples = 4
	// reading is how many of them are held at once.
	reading = 2
	// sampleCache bounds what is kept of the tarball between them, in bytes.
	sampleCache = 2 << 20
)

// verifyTarball reads back what was assembled, from the bucket and as a restore does: the tarball
// has the size that is in the manifest, and the first object of some kinds is where the manifest
// has it, with its hash. So a part that is missing, or in another place, is found before the
// commit. The parts themselves were hashed when they were stored.
func verifyTarball(ctx context.Context, s *State) error {
	if err := s.verifyParts(ctx); err != nil {
		return fmt.Errorf("verify the tarball: %w", err)
	}
	return nil
}

func (s *State) verifyParts(ctx context.Context) error {
	listed, err := tarball.OpenManifest(ctx, s.Store, s.Backup.Name)
	if err != nil {
		return err
	}
	stored, err := tarball.FromManifest(ctx, s.Store, s.Backup.Name, tarball.Limits{CacheBytes: sampleCache})
	if err != nil {
		return err
	}
	defer func() { _ = stored.Close() }() // it holds memory alone
	kinds := listed.Kinds()
	n := min(samples, len(kinds))
	return panics.ForEach(ctx, reading, n, func(ctx context.Context, i int) error {
		// Evenly from the first kind to the last.
		kind := kinds[i*(len(kinds)-1)/max(n-1, 1)]
		for item, err := range listed.Items(ctx, manifest.Filter{Kinds: []string{kind.Kind}}) {
			if err == nil {
				_, err = stored.Read(ctx, item)
			}
			return err
		}
		return fmt.Errorf("%w: the manifest has no object of its kind %s", manifest.ErrCorrupt, kind.Kind)
	})
}
