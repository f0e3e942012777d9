// Package retrystore retries the calls of an object store: a bucket that is away for a moment
// delays a job and does not fail it.
package retrystore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// longPause is the longest pause between two attempts.
const longPause = 15 * time.Second

// Store retries the calls of another store until they succeed, fail for good, or Budget has passed.
// A Create that is retried after its answer got lost recognizes its own object. Safe for concurrent
// use.
type Store struct {
	objectstore.Store
	Clock  clock.WithTicker
	Log    *slog.Logger
	Budget time.Duration // from the first failure of a call
	// Confirm, if set, is called before a call is retried; its error ends the call without another
	// attempt: a caller that waited may have lost the right to write.
	Confirm func(ctx context.Context) error
	// Impatient: once a call failed for Budget, each call is made once, until one succeeds. It is for
	// callers that make thousands of calls and survive the failure of each.
	Impatient bool
	// Failing, if set, is called whenever a call failed that is retried, with for how long it has been
	// failing; concurrently for concurrent calls.
	Failing func(since time.Duration)

	away atomic.Bool // a call failed for Budget
}

// onceKey marks the contexts of Once.
type onceKey struct{}

// Once returns a context whose calls are not retried, for a caller that is about to end.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// Get implements objectstore.Reader; reading the body is retried too.
func (s *Store) Get(ctx context.Context, key string) (open io.ReadCloser, err error) {
	err = s.retryCall(ctx, "get", key, func(int) error {
		open, err = s.Store.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &resumingBody{ctx: ctx, store: s, key: key, left: -1, open: open}, nil
}

// GetRange implements objectstore.Reader; reading the body is retried too.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (open io.ReadCloser, err error) {
	err = s.retryCall(ctx, "get range", key, func(int) error {
		open, err = s.Store.GetRange(ctx, key, off, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &resumingBody{ctx: ctx, store: s, key: key, off: off, left: n, open: open}, nil
}

// Stat implements objectstore.Reader.
func (s *Store) Stat(ctx context.Context, key string) (info objectstore.Info, err error) {
	err = s.retryCall(ctx, "stat", key, func(int) error {
		info, err = s.Store.Stat(ctx, key)
		return err
	})
	return info, err
}

// List implements objectstore.Reader. It is retried only until fn has seen an object.
func (s *Store) List(ctx context.Context, prefix string, fn func(objectstore.Info) error) error {
	var begun error
	err := s.retryCall(ctx, "list", prefix, func(int) error {
		seen := false
		err := s.Store.List(ctx, prefix, func(info objectstore.Info) error {
			seen = true
			return fn(info)
		})
		if seen {
			begun = err
			return nil
		}
		return err
	})
	return errors.Join(err, begun)
}

// ListPrefixes implements objectstore.Reader.
func (s *Store) ListPrefixes(ctx context.Context, prefix string) (found []string, err error) {
	err = s.retryCall(ctx, "list prefixes", prefix, func(int) error {
		found, err = s.Store.ListPrefixes(ctx, prefix)
		return err
	})
	return found, err
}

// Put implements objectstore.Writer.
func (s *Store) Put(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	return s.fromStart(ctx, "put", key, r, func(int) error { return s.Store.Put(ctx, key, r, size) })
}

// Create implements objectstore.Writer.
func (s *Store) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	return s.fromStart(ctx, "create", key, r, func(attempt int) error {
		err := s.Store.Create(ctx, key, r, size)
		if attempt == 0 || !errors.Is(err, objectstore.ErrExists) {
			return err
		}
		if _, err := r.Seek(start, io.SeekStart); err != nil {
			return err
		}
		same, readErr := s.holdsContent(ctx, key, r, size)
		if readErr != nil {
			return readErr
		}
		if same {
			return nil // the earlier attempt had succeeded after all
		}
		return err
	})
}

// Delete implements objectstore.Writer.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.retryCall(ctx, "delete", key, func(int) error { return s.Store.Delete(ctx, key) })
}

// Compose implements objectstore.Writer. After a lost answer it may return ErrExists for its own
// object: callers compare what is there.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (info objectstore.Info, err error) {
	err = s.retryCall(ctx, "compose", key, func(int) error {
		info, err = s.Store.Compose(ctx, key, src)
		return err
	})
	return info, err
}

// fromStart rewinds r before each attempt.
func (s *Store) fromStart(ctx context.Context, what, key string, r io.ReadSeeker, fn func(attempt int) error) error {
	start, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, key, err)
	}
	return s.retryCall(ctx, what, key, func(attempt int) error {
		if _, err := r.Seek(start, io.SeekStart); err != nil {
			return err
		}
		return fn(attempt)
	})
}

// retryCall makes a call until it succeeds or is not to be retried. fn gets the number of the attempt,
// from 0.
func (s *Store) retryCall(ctx context.Context, what, key string, fn func(attempt int) error) error {
	loop := retry.Loop{
		Clock: s.Clock, Log: s.Log, Budget: max(s.Budget, 1), Longest: longPause, Args: []any{"key", key}, Between: s.Confirm,
		Transient: func(err error) bool {
			return classifyError(err) == transient && ctx.Value(onceKey{}) == nil && !(s.Impatient && s.away.Load())
		},
	}
	attempt := 0
	var first time.Time // failure
	err := loop.Do(ctx, what, func() error {
		attempt++
		err := fn(attempt - 1)
		if s.Failing != nil && err != nil && ctx.Err() == nil && classifyError(err) == transient {
			now := s.Clock.Now()
			if first.IsZero() {
				first = now
			}
			s.Failing(now.Sub(first))
		}
		return err
	})
	if spent := (*retry.BudgetError)(nil); errors.As(err, &spent) {
		s.away.Store(true)
		return fmt.Errorf("%s %s: %w", what, key, err)
	}
	if err == nil {
		s.away.Store(false)
	}
	return err
}

// holdsContent reports whether the object's content is that of r.
func (s *Store) holdsContent(ctx context.Context, key string, r io.Reader, size int64) (bool, error) {
	info, err := s.Store.Stat(ctx, key)
	if err != nil || info.Size != size {
		return false, err
	}
	body, err := s.Store.Get(ctx, key)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	return equalContent(body, io.LimitReader(r, size))
}

func equalContent(a, b io.Reader) (bool, error) {
	bufA, bufB := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		endA, endB := isEnd(errA), isEnd(errB)
		if errA != nil && !endA {
			return false, errA
		}
		if errB != nil && !endB {
			return false, errB
		}
		if endA || endB {
			return endA == endB, nil
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
