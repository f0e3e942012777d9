package finalize

import (
	"context"
	"errors"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
)

// recordedError carries a failure that is recorded in the bucket.
type recordedError struct{ failure checkpoint.Failure }

func (e *recordedError) Error() string { return e.failure.Reason }

// collectItems follows the composition that is fixed, or collects and fixes one. A failure that an
// earlier holder recorded is a *recordedError.
func collectItems(ctx context.Context, s *State) error {
	if s.GivenUp != nil {
		return s.GivenUp
	}
	name, uid := s.Backup.Name, string(s.Backup.UID)
	c, err := checkpoint.ReadComposition(ctx, s.Store, name, uid)
	if errors.Is(err, objectstore.ErrNotFound) {
		c, err = s.Collect(ctx)
	}
	if err != nil {
		return err
	}
	if c.Failure != nil {
		return &recordedError{*c.Failure}
	}
	if c.Epoch != s.Epoch { // its assembly may have failed
		failure, err := checkpoint.ReadFailure(ctx, s.Store, name, uid)
		if err == nil {
			return &recordedError{failure}
		}
		if !errors.Is(err, objectstore.ErrNotFound) {
			return err
		}
	}
	s.Composition = &c
	return nil
}
