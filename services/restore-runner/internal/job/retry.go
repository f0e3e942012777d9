package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/job/document"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/kube/retry"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/retrystore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/pausing"
)

// Pauses between two calls to a bucket that does not answer.
const (
	firstStorePause = time.Second
	longStorePause  = 15 * time.Second
)

// storeRetry retries calls to the bucket: an outage delays a restore.
type storeRetry struct {
	clock  clock.WithTicker
	log    *slog.Logger
	budget time.Duration
	// still is called after each pause; its error ends the wait.
	still func(context.Context) error
}

// retryStoreCall makes a call to the bucket until it succeeds, for as long as a location is waited for. An
// error is fatal for the restore after that, and at once when waiting changes nothing, but for
// damage, the loss of the claim, and the end of ctx.
func retryStoreCall[T any](ctx context.Context, r *storeRetry, what string, do func() (T, error)) (out T, err error) {
	var ended error
	loop := retry.Loop{
		Clock: r.clock, Log: r.log, Transient: isTransient, Budget: r.budget, First: firstStorePause, Longest: longStorePause,
		Between: func(ctx context.Context) error {
			ended = r.still(ctx)
			return ended
		},
	}
	err = loop.Do(ctx, what, func() (err error) {
		out, err = do()
		return err
	})
	if err == nil || ended != nil || ctx.Err() != nil || isDamaged(err) || errors.Is(err, claim.ErrLost) {
		return out, err
	}
	return out, fatalErrorf("%s: %w", what, err)
}

// isTransient reports that a failure of the bucket may go away by itself.
func isTransient(err error) bool {
	var fatal *fatalError
	switch {
	case errors.As(err, &fatal), isDamaged(err), retrystore.Refused(err), errors.Is(err, outcome.ErrFormat), errors.Is(err, pausing.ErrNoRecords), errors.Is(err, operation.ErrDamaged), errors.Is(err, document.ErrTooLarge):
		return false
	}
	return !errors.Is(err, claim.ErrLost) && !errors.Is(err, objectstore.ErrNotFound) && !errors.Is(err, journal.ErrCorrupt)
}

// isDamaged reports that a backup cannot be read, however often it is tried.
func isDamaged(err error) bool {
	for _, target := range []error{tarball.ErrCorrupt, tarball.ErrTooLarge, tarball.ErrPath, tarball.ErrMismatch, manifest.ErrCorrupt} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// isTransientServerError reports that a failure of the API server, or of what is reached over the network, may
// go away by itself.
func isTransientServerError(err error) bool {
	var fatal *fatalError
	return !errors.As(err, &fatal) && kube.IsTransient(err)
}

// unlessAway makes an error fatal, unless it means that the API server is temporarily unavailable.
func unlessAway(err error, what string) error {
	var status apierrors.APIStatus
	var network net.Error // *url.Error is one too
	if apierrors.IsNotFound(err) || (!errors.As(err, &status) && !errors.As(err, &network)) {
		return fatalErrorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// retryingSource retries the reads of a tarball: a moment's outage would otherwise cost every
// object that is being read. After an outage that outlasted the budget, reads are tried once each
// until one succeeds.
type retryingSource struct {
	tarball.Source
	retry *storeRetry
	away  atomic.Bool
}

// Read returns the body of an item. What is damaged is not read again.
func (s *retryingSource) Read(ctx context.Context, item manifest.Item) ([]byte, error) {
	read := func() ([]byte, error) { return s.Source.Read(ctx, item) }
	if s.away.Load() {
		body, err := read()
		if err == nil {
			s.away.Store(false)
		}
		return body, err
	}
	body, err := retryStoreCall(ctx, s.retry, "read "+item.Path, read)
	if err != nil && !isDamaged(err) && ctx.Err() == nil {
		s.away.Store(true)
	}
	return body, err
}
