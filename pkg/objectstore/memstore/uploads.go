package memstore

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// LeaveUpload makes the store look as if a writer of key had died on the way, now by the store's
// clock.
func (s *Store) LeaveUpload(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uploads = append(s.uploads, objectstore.Upload{Key: key, Begun: s.Clock.Now()})
}

// Uploads returns the keys of unfinished writes, in the order they were left.
func (s *Store) Uploads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, u := range s.uploads {
		keys = append(keys, u.Key)
	}
	return keys
}

// SweepUploads implements objectstore.UploadSweeper.
func (s *Store) SweepUploads(ctx context.Context, prefix string, abandoned func(objectstore.Upload) (bool, error)) (int, error) {
	if err := objectstore.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	if err := s.enterCall(ctx, OpSweep, prefix); err != nil {
		return 0, err
	}
	s.mu.Lock()
	all := slices.Clone(s.uploads)
	s.mu.Unlock()
	swept := 0
	for _, u := range all {
		if !strings.HasPrefix(u.Key, prefix) {
			continue
		}
		if ok, err := abandoned(u); err != nil {
			return swept, err
		} else if !ok {
			continue
		}
		s.mu.Lock()
		if i := slices.Index(s.uploads, u); i >= 0 {
			s.uploads = slices.Delete(s.uploads, i, i+1)
		}
		s.mu.Unlock()
		swept++
	}
	return swept, nil
}
