package queue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/validate"
)

// What reads of buckets may cost the queue.
const (
	readBudget  = 15 * time.Second // of one pass
	minRead     = 5 * time.Second  // what is left for a read; a bucket silent for as long hangs
	readBackoff = time.Minute      // before a bucket that hung is tried again
	readTries   = 2                // after which its restores no longer wait for it
)

// errUnread means that what a restore writes to is to be read in a later pass. Until then it
// reserves nothing: it would reserve everything.
var errUnread = errors.New("the backup is not read yet")

// targetReads bounds the reads of targets. Only passes use it.
type targetReads struct {
	reader    client.Reader
	namespace string
	validator Validator
	clock     clock.WithTicker
	log       *slog.Logger

	spent time.Duration   // of the budget of this pass
	hung  map[string]hang // by location
}

type hang struct {
	tries int
	until time.Time
}

// findTargets reads from the backup the namespaces that the restore writes to. One that cannot be
// read now may hold anything; errUnread is for one that can wait.
func (l *targetReads) findTargets(ctx context.Context, r *velerov1.Restore) ([]string, error) {
	sure := validate.Targets(&r.Spec)
	if !slices.Contains(sure, selection.All) {
		return sure, nil
	}
	location := l.locationOf(ctx, r.Spec.BackupName)
	h := l.hung[location]
	left := readBudget - l.spent
	switch paused := l.clock.Now().Before(h.until); {
	case paused && h.tries >= readTries:
		return sure, nil
	case paused || left < minRead:
		return nil, errUnread
	}
	began := l.clock.Now()
	found, late, err := l.readWithin(ctx, left, r)
	l.spent += l.clock.Since(began)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case late:
		h = hang{h.tries + 1, l.clock.Now().Add(readBackoff)}
		l.hung[location] = h
		l.log.WarnContext(ctx, "bucket hangs", "location", location, "restore", r.Name, "tries", h.tries, "error", err)
		if h.tries < readTries {
			return nil, errUnread
		}
		return sure, nil
	}
	delete(l.hung, location)
	if err != nil {
		l.log.WarnContext(ctx, "backup not readable, the restore counts as one of all it may hold", "restore", r.Name, "namespaces", sure, "error", err)
		return sure, nil
	}
	return found, nil
}

// readWithin reads targets for a time of the injected clock.
func (l *targetReads) readWithin(ctx context.Context, left time.Duration, r *velerov1.Restore) (_ []string, late bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := l.clock.NewTimer(left)
	defer timer.Stop()
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	found, err := l.validator.Targets(ctx, r)
	return found, err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)), err
}

// locationOf names the location of a backup, or the backup where that is unknown.
func (l *targetReads) locationOf(ctx context.Context, backup string) string {
	b := &velerov1.Backup{}
	if err := l.reader.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: backup}, b); err != nil || b.Spec.StorageLocation == "" {
		return "of backup " + backup
	}
	return b.Spec.StorageLocation
}
