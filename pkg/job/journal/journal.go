// Package journal keeps the durable progress of a job as immutable records in a bucket, written by
// the holder of the job's claim.
//
// The holder of an epoch numbers its records from 1 without gaps and creates each only if there is
// none. The holder that takes the job over first closes every earlier epoch, by creating that
// epoch's next record itself: the next record of a holder that still runs fails with ErrFenced, and
// it stops before the effect that the record would have announced.
//
// Beside the records it keeps JSON documents of a job that are created once: the first writer decides,
// and later ones read what it stored.
package journal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

var (
	// ErrFenced means that the holder of a later epoch closed this one.
	ErrFenced = errors.New("the epoch was closed by another holder")
	// ErrCorrupt means that records are missing or that their names cannot be read.
	ErrCorrupt = errors.New("corrupt journal")
)

// MaxRecordBytes bounds one record.
const MaxRecordBytes = 64 << 20

// closing begins the record that closes an epoch; the closing epoch follows. No other record may
// begin with it.
const closing = "holdfast journal: closed by epoch "

// Journal is the records of one job, open for the holder of one epoch. Safe for concurrent use.
type Journal struct {
	store   objectstore.Store
	prefix  string
	epoch   int64
	earlier []string

	mu  sync.Mutex
	seq int64
	// unsure are the failed calls for the next number, any of which may have written it; stored are
	// those found to have written theirs.
	unsure, stored []appendAttempt
}

// Key is the key of a record: the prefix, then epoch and sequence so that the order of keys is the
// order of records.
func Key(prefix string, epoch, seq int64) string {
	return fmt.Sprintf("%s%010d-%010d", prefix, epoch, seq)
}

// Open closes all earlier epochs of the journal whose keys begin with prefix and returns it, ready
// to append as epoch. The claim of that epoch must be held and not have been opened before.
// ErrFenced when a later epoch was there first.
func Open(ctx context.Context, store objectstore.Store, prefix string, epoch int64) (*Journal, error) {
	j := &Journal{store: store, prefix: prefix, epoch: epoch}
	last, err := j.lastSequences(ctx)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	first, err := j.closedUpTo(ctx, last)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	// In ascending order, so that a closed epoch has only closed ones before it.
	for e := first + 1; e < epoch; e++ {
		if last[e], err = j.closeEpoch(ctx, e, last[e]+1); err != nil {
			return nil, fmt.Errorf("close epoch %d: %w", e, err)
		}
	}
	for e := int64(1); e < epoch; e++ {
		for seq := int64(1); seq < last[e]; seq++ {
			j.earlier = append(j.earlier, Key(prefix, e, seq))
		}
	}
	return j, nil
}

// lastSequences returns the last sequence number of each epoch.
func (j *Journal) lastSequences(ctx context.Context) (map[int64]int64, error) {
	last := map[int64]int64{}
	err := j.store.List(ctx, j.prefix, func(info objectstore.Info) error {
		e, seq, ok := parseKey(strings.TrimPrefix(info.Key, j.prefix))
		switch {
		case !ok:
			return fmt.Errorf("%w: %s is no record", ErrCorrupt, info.Key)
		case e >= j.epoch:
			return fmt.Errorf("%w: %s exists", ErrFenced, info.Key)
		case seq != last[e]+1:
			return fmt.Errorf("%w: there is no record before %s", ErrCorrupt, info.Key)
		}
		last[e] = seq
		return nil
	})
	return last, err
}

// parseKey reads what follows the prefix in a key.
func parseKey(name string) (epoch, seq int64, ok bool) {
	front, back, ok := strings.Cut(name, "-")
	epoch, err := strconv.ParseInt(front, 10, 64)
	if err != nil || !ok || epoch < 1 {
		return 0, 0, false
	}
	seq, err = strconv.ParseInt(back, 10, 64)
	return epoch, seq, err == nil && seq >= 1
}

// closedUpTo returns the last epoch that is closed already, 0 if none is.
func (j *Journal) closedUpTo(ctx context.Context, last map[int64]int64) (int64, error) {
	for e := j.epoch - 1; e >= 1; e-- {
		if last[e] == 0 {
			continue
		}
		closed, err := j.isClosingRecord(ctx, Key(j.prefix, e, last[e]))
		if err != nil {
			return 0, err
		}
		if closed {
			return e, nil
		}
	}
	return 0, nil
}

// closeEpoch creates the closing record of an epoch, at seq or behind what its holder writes meanwhile,
// and returns its number.
func (j *Journal) closeEpoch(ctx context.Context, epoch, seq int64) (int64, error) {
	text := []byte(closing + strconv.FormatInt(j.epoch, 10) + "\n")
	for ; ; seq++ {
		key := Key(j.prefix, epoch, seq)
		err := objectstore.CreateBytes(ctx, j.store, key, text)
		if !errors.Is(err, objectstore.ErrExists) {
			return seq, err
		}
		closed, err := j.isClosingRecord(ctx, key)
		if err != nil || closed {
			return seq, err
		}
	}
}

// isClosingRecord reports whether a record closes its epoch; ErrFenced when it does so for a later epoch
// than this journal's.
func (j *Journal) isClosingRecord(ctx context.Context, key string) (bool, error) {
	data, err := Read(ctx, j.store, key)
	if err != nil {
		return false, err
	}
	by, ok := bytes.CutPrefix(data, []byte(closing))
	if !ok {
		return false, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(by)), 10, 64)
	if err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrCorrupt, key, err)
	}
	if n > j.epoch {
		return false, fmt.Errorf("%w: epoch %d is open", ErrFenced, n)
	}
	return true, nil
}

// Earlier returns the keys of the records of all earlier epochs, in order. No more of them can
// appear.
func (j *Journal) Earlier() []string { return j.earlier }

// Append makes data durable as the next record and returns its key. Whatever the record refers to
// must be durable already. After an error other than ErrFenced Append may be called again with the
// same data, which is then stored once, even if other calls appended meanwhile; without that the
// record may exist or not.
func (j *Journal) Append(ctx context.Context, data []byte) (string, error) {
	return j.AppendNumbered(ctx, func(int64) ([]byte, error) { return data, nil })
}

// AppendNumbered is Append of what encode returns for the record's number. It may be called for
// several numbers, and returns the same for the same one.
func (j *Journal) AppendNumbered(ctx context.Context, encode func(seq int64) ([]byte, error)) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, known := range j.stored {
		data, err := encode(known.seq)
		if err != nil {
			return "", err
		}
		if sha256.Sum256(data) == known.sum {
			j.stored = slices.Delete(j.stored, i, i+1)
			return Key(j.prefix, j.epoch, known.seq), nil
		}
	}
	for {
		data, err := encode(j.seq + 1)
		if err != nil {
			return "", err
		}
		key, err := j.appendRecord(ctx, data)
		if !errors.Is(err, errTaken) {
			return key, err
		}
	}
}

// appendAttempt is a record that a call tried to write, by number and content.
type appendAttempt struct {
	seq int64
	sum [sha256.Size]byte
}

// errTaken means that a number has a record of an earlier call of this process.
var errTaken = errors.New("the number is taken by an earlier call")

func (j *Journal) appendRecord(ctx context.Context, data []byte) (string, error) {
	seq := j.seq + 1
	key := Key(j.prefix, j.epoch, seq)
	if len(data) > MaxRecordBytes {
		return "", fmt.Errorf("record %d of epoch %d: %w: %d bytes", seq, j.epoch, objectstore.ErrSize, len(data))
	}
	err := objectstore.CreateBytes(ctx, j.store, key, data)
	if errors.Is(err, objectstore.ErrExists) {
		err = j.acceptOwnRecord(ctx, key, seq, data)
	}
	switch {
	case err == nil, errors.Is(err, errTaken):
		j.seq, j.unsure = seq, nil
	case !errors.Is(err, ErrFenced):
		j.unsure = append(j.unsure, appendAttempt{seq, sha256.Sum256(data)})
	}
	if err != nil {
		return "", fmt.Errorf("record %d of epoch %d: %w", seq, j.epoch, err)
	}
	return key, nil
}

// acceptOwnRecord accepts a record that an earlier call, whose answer was lost, has written. If that was a
// concurrent call, which may be repeated, the error is errTaken.
func (j *Journal) acceptOwnRecord(ctx context.Context, key string, seq int64, data []byte) error {
	stored, err := Read(ctx, j.store, key)
	if err != nil || bytes.Equal(stored, data) {
		return err
	}
	if found := (appendAttempt{seq, sha256.Sum256(stored)}); slices.Contains(j.unsure, found) {
		j.stored = append(j.stored, found)
		return errTaken
	}
	return ErrFenced
}

// IsClosing reports whether what Read returned is no holder's record but what closed an epoch.
func IsClosing(data []byte) bool { return bytes.HasPrefix(data, []byte(closing)) }

// Read returns the record under a key.
func Read(ctx context.Context, store objectstore.Reader, key string) ([]byte, error) {
	return objectstore.ReadAll(ctx, store, key, MaxRecordBytes)
}
