package maintain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// leaseDuration is how long a run that is not heard of keeps others out, and renewInterval how often it is
	// heard of.
	leaseDuration, renewInterval = 30 * time.Minute, 5 * time.Minute
	// leaseMargin is how far the clocks of two holders may be apart.
	leaseMargin = 10 * time.Minute
	// maxRecord is the longest record that is read.
	maxRecord = 64 << 10
)

// record is the content of a lease, and what is known of earlier runs.
type record struct {
	// Holder is who maintains the repository; empty once that has ended.
	Holder string `json:"holder,omitempty"`
	// Expires is when a holder that was killed has no right any more.
	Expires time.Time `json:"expires"`
	// KnownRun is when the newest run began that kopia.maintenance had at the end of the last holder. A later one
	// is another program's.
	KnownRun time.Time `json:"knownRun"`
	// LastFull is when the newest full run began that succeeded.
	LastFull time.Time `json:"lastFull"`
}

// lease is the right to maintain one repository. Of its numbered records the last one counts, and a new holder
// creates the next one: so of any number of holders one succeeds.
type lease struct {
	store  objectstore.Store
	prefix string
	number int64
	clock  clock.PassiveClock
	record record
}

// heldError means that another Holdfast maintains the repository.
type heldError struct{ record }

func (e *heldError) Error() string {
	if e.Holder == "" {
		return "another Holdfast has just begun to maintain the repository"
	}
	return fmt.Sprintf("%s maintains the repository, or was killed and keeps the right to do so until %s", e.Holder, e.Expires.Add(leaseMargin).UTC().Format(time.RFC3339))
}

// acquireLease returns the lease of a namespace's repository. The error is a *heldError while another holder has it.
func acquireLease(ctx context.Context, store objectstore.Store, namespace, holder string, c clock.PassiveClock) (*lease, error) {
	l := &lease{store: store, prefix: layout.MaintenanceRecords(namespace), clock: c}
	numbers, err := l.listNumbers(ctx)
	if err != nil {
		return nil, err
	}
	l.number = slices.Max(append(numbers, 0))
	if err := l.readRecord(ctx); err != nil {
		return nil, err
	}
	switch {
	case l.record.Holder != "" && c.Now().Before(l.record.Expires.Add(leaseMargin)):
		return nil, &heldError{l.record}
	case l.record.Holder != "": // it was killed: the runs until its lease expired are its own
		l.record.KnownRun = l.record.Expires
	}
	l.number++
	l.record.Holder, l.record.Expires = holder, c.Now().Add(leaseDuration)
	if err := l.createRecord(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// createRecord creates the next record, unless somebody did, and removes those before it.
func (l *lease) createRecord(ctx context.Context) error {
	data, err := json.Marshal(l.record)
	if err != nil {
		return err
	}
	err = objectstore.CreateBytes(ctx, l.store, l.recordKey(l.number), data)
	if errors.Is(err, objectstore.ErrExists) {
		return &heldError{}
	}
	if err != nil {
		return err
	}
	numbers, err := l.listNumbers(ctx) // again: a later holder may have removed the one that was the last
	if err == nil && slices.Max(append(numbers, l.number)) != l.number {
		return errors.Join(&heldError{}, l.store.Delete(ctx, l.recordKey(l.number)))
	}
	for _, n := range numbers {
		if n < l.number {
			err = errors.Join(err, l.store.Delete(ctx, l.recordKey(n)))
		}
	}
	return err
}

func (l *lease) recordKey(number int64) string { return fmt.Sprintf("%s%012d", l.prefix, number) }

// listNumbers returns the numbers of the records.
func (l *lease) listNumbers(ctx context.Context) (numbers []int64, err error) {
	err = l.store.List(ctx, l.prefix, func(i objectstore.Info) error {
		if n, err := strconv.ParseInt(strings.TrimPrefix(i.Key, l.prefix), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
		return nil
	})
	return numbers, err
}

func (l *lease) readRecord(ctx context.Context) error {
	if l.number == 0 {
		return nil
	}
	data, err := objectstore.ReadAll(ctx, l.store, l.recordKey(l.number), maxRecord)
	if errors.Is(err, objectstore.ErrNotFound) { // a later holder removed it
		return &heldError{}
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &l.record); err != nil {
		return fmt.Errorf("%s is no record of maintenance, and may be deleted: %w", l.recordKey(l.number), err)
	}
	return nil
}

// errExpired means that another Holdfast may maintain the repository by now.
var errExpired = errors.New("the right to maintain the repository could not be kept")

// renewLease makes the lease last from now on, unless it has expired.
func (l *lease) renewLease(ctx context.Context) error {
	next, now := l.record, l.clock.Now()
	if now.After(next.Expires) {
		return errExpired
	}
	next.Expires = now.Add(leaseDuration)
	if err := l.writeRecord(ctx, next); err != nil {
		return err
	}
	l.record = next
	return nil
}

// releaseLease lets others have the lease, with what is known now.
func (l *lease) releaseLease(ctx context.Context) error {
	l.record.Holder = ""
	return l.writeRecord(ctx, l.record)
}

// writeRecord replaces the record. Only the record with the highest number is valid.
func (l *lease) writeRecord(ctx context.Context, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return objectstore.PutBytes(ctx, l.store, l.recordKey(l.number), data)
}
