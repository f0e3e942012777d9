package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/job/panics"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Log is the records of one backup, open for the holder of one epoch. Safe for concurrent use.
type Log struct {
	journal *journal.Journal
	backup  string
	uid     string
	epoch   int64
}

// Open closes the epochs before this one and returns the log, to be appended to as epoch. The error
// wraps journal.ErrFenced when a later epoch was there first.
func Open(ctx context.Context, store objectstore.Store, backup, uid string, epoch int64) (*Log, error) {
	j, err := journal.Open(ctx, store, layout.CheckpointPrefix(backup, uid), epoch)
	if err != nil {
		return nil, err
	}
	return &Log{journal: j, backup: backup, uid: uid, epoch: epoch}, nil
}

// Earlier returns the keys of the records of earlier epochs, in order. No more of them can appear.
func (l *Log) Earlier() []string { return l.journal.Earlier() }

// Append makes rec durable as the next record and returns its key. The part it names must be
// durable already. The error wraps journal.ErrFenced when a later epoch is open.
func (l *Log) Append(ctx context.Context, rec Record) (string, error) {
	return l.journal.AppendNumbered(ctx, func(seq int64) ([]byte, error) {
		failpoint.Hit("backup-runner/record")
		rec.FormatVersion, rec.Backup, rec.UID, rec.Epoch, rec.Seq = recordVersion, l.backup, l.uid, l.epoch, seq
		data, err := json.Marshal(rec)
		if err != nil {
			return nil, fmt.Errorf("encode record: %w", err)
		}
		return data, nil
	})
}

// readAhead is how many records are fetched at once.
const readAhead = 16

// ErrClosing means that there is no record under a key, but what closed an epoch. Log.Earlier has
// no such key.
var ErrClosing = errors.New("it closes an epoch")

// Each calls fn with the records under the keys, in that order. It holds few of them at a time.
// Those of another backup, or of another format, are journal.ErrCorrupt; one that is none is
// ErrClosing.
func Each(ctx context.Context, store objectstore.Reader, backup, uid string, keys []string, fn func(key string, rec *Record) error) error {
	var batch [readAhead]Record
	for len(keys) > 0 {
		n := min(readAhead, len(keys))
		group, groupCtx := panics.NewGroup(ctx)
		for i, key := range keys[:n] {
			group.Go(func() (err error) {
				batch[i], err = readRecord(groupCtx, store, backup, uid, key)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		for i, key := range keys[:n] {
			if err := fn(key, &batch[i]); err != nil {
				return err
			}
		}
		keys = keys[n:]
	}
	return nil
}

func readRecord(ctx context.Context, store objectstore.Reader, backup, uid, key string) (Record, error) {
	var rec Record
	data, err := journal.Read(ctx, store, key)
	if err != nil {
		return rec, fmt.Errorf("read record: %w", err)
	}
	if journal.IsClosing(data) {
		return rec, fmt.Errorf("record %s: %w", key, ErrClosing)
	}
	if err := jsonlimit.Unmarshal(data, &rec, maxDecoded); err != nil {
		return rec, fmt.Errorf("record %s: %w: %w", key, journal.ErrCorrupt, err)
	}
	if rec.FormatVersion != recordVersion {
		return rec, fmt.Errorf("record %s: %w: formatVersion: %d is not supported", key, journal.ErrCorrupt, rec.FormatVersion)
	}
	if rec.Backup != backup || rec.UID != uid {
		return rec, fmt.Errorf("record %s: %w: it belongs to backup %s (uid %s)", key, journal.ErrCorrupt, rec.Backup, rec.UID)
	}
	return rec, nil
}
