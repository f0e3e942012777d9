package doctor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/doctor"
)

// buckets opens one store for every location.
type buckets struct {
	store objectstore.Store
	note  string
	err   error
}

// Validate implements doctor.Locations.
func (b *buckets) Validate(context.Context, *velerov1.BackupStorageLocation) (string, error) {
	return b.note, b.err
}

// Open implements doctor.Locations.
func (b *buckets) Open(_ context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error) {
	if loc.Spec.AccessMode == velerov1.LocationModeReadOnly {
		return objectstore.ReadOnly(b.store), nil
	}
	return b.store, nil
}

// inBucket is a cluster with one location, whose bucket holds a backup.
func inBucket(t *testing.T) (*bed, *memstore.Store, *buckets) {
	t.Helper()
	store := memstore.New()
	store.Set("backups/b/velero-backup.json", []byte("{}"))
	open := &buckets{store: store}
	b := newBed(t)
	b.objects = asObjects([]*velerov1.BackupStorageLocation{newLocation("default", "backups")})
	b.adapt = func(c *doctor.Config) { c.Locations = open }
	return b, store, open
}

func requireUntouched(t *testing.T, store *memstore.Store) {
	t.Helper()
	require.Equal(t, []string{"backups/b/velero-backup.json"}, store.Keys())
	data, _ := store.Bytes("backups/b/velero-backup.json")
	require.Equal(t, "{}", string(data))
}

func TestABucketThatDoesEverything(t *testing.T) {
	b, store, _ := inBucket(t)
	requireFine(t, b.runCheck("locations"))
	requireUntouched(t, store)
	for _, op := range []memstore.Op{memstore.OpPut, memstore.OpGet, memstore.OpCreate, memstore.OpCompose, memstore.OpDelete, memstore.OpList} {
		require.NotZero(t, store.Calls(op), op)
	}
}

// Everything that is written or removed is below the prefix of its own.
func TestNothingElseIsTouched(t *testing.T) {
	b, store, _ := inBucket(t)
	store.Inject(func(op memstore.Op, key string) error {
		if op != memstore.OpList && !strings.HasPrefix(key, "metadata/holdfast/doctor/") {
			t.Errorf("%s of %s", op, key)
		}
		return nil
	})
	requireFine(t, b.runCheck("locations"))
	requireUntouched(t, store)
}

func TestEachCallThatFailsIsFound(t *testing.T) {
	errAway := errors.New("away")
	for op, words := range map[memstore.Op]string{
		memstore.OpPut: "write an object", memstore.OpGet: "read", memstore.OpStat: "write an object", memstore.OpCreate: "create an object only if there is none",
		memstore.OpCompose: "compose",
	} {
		b, store, _ := inBucket(t)
		store.Inject(func(called memstore.Op, _ string) error {
			if called == op {
				return errAway
			}
			return nil
		})
		require.True(t, containsWord(findingsWith(doctor.Failed, b.runCheck("locations")), words), op)
		requireUntouched(t, store)
	}
	for _, op := range []memstore.Op{memstore.OpDelete, memstore.OpSweep} {
		b, store, _ := inBucket(t)
		store.Inject(func(called memstore.Op, _ string) error {
			if called == op {
				return objectstore.ErrAccess
			}
			return nil
		})
		found := b.runCheck("locations")
		requireFinding(t, doctor.Failed, found, "delete what was written")
		for _, f := range found {
			require.Contains(t, f.Remedy, "metadata/holdfast/doctor/", "it says what is left")
		}
	}
}

// odd is a store with a behaviour that S3 has not.
type odd struct {
	objectstore.Store
	whole, twice, shuffled, undead bool
}

// GetRange ignores the range.
func (o *odd) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if o.whole && off > 0 && !strings.HasSuffix(key, "composed") {
		return o.Get(ctx, key)
	}
	return o.Store.GetRange(ctx, key, off, n)
}

// Create replaces what is there.
func (o *odd) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	if o.twice {
		return o.Put(ctx, key, r, size)
	}
	return o.Store.Create(ctx, key, r, size)
}

// Compose takes the pieces in another order.
func (o *odd) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	if o.shuffled {
		src = []objectstore.Source{src[1], src[0]}
	}
	return o.Store.Compose(ctx, key, src)
}

// Delete does nothing.
func (o *odd) Delete(ctx context.Context, key string) error {
	if o.undead {
		return nil
	}
	return o.Store.Delete(ctx, key)
}

func TestAStoreThatDoesSomethingElseIsFound(t *testing.T) {
	for words, store := range map[string]*odd{
		"read a range": {whole: true}, "create an object only if": {twice: true}, "compose": {shuffled: true}, "delete what was written": {undead: true},
	} {
		b, _, open := inBucket(t)
		store.Store = memstore.New()
		open.store = store
		requireFinding(t, doctor.Failed, b.runCheck("locations"), words, "does not do what S3 does")
	}
}

// A store that is known to have no conditional creation is worth a warning, whatever concurrent
// creations would do in it.
func TestAStoreWithoutConditionalCreationIsAWarning(t *testing.T) {
	b, _, open := inBucket(t)
	open.store, open.note = &odd{Store: memstore.New(), twice: true}, "conditions are ignored"
	found := b.runCheck("locations")
	require.Empty(t, findingsWith(doctor.Failed, found))
	requireFinding(t, doctor.Warning, found, "conditions are ignored")
	require.NotContains(t, findingsWith(doctor.OK, found)[0], "created once")
}

// hanging does not answer for one location.
type hanging struct {
	*buckets
	name string
}

// Validate implements doctor.Locations.
func (h *hanging) Validate(ctx context.Context, loc *velerov1.BackupStorageLocation) (string, error) {
	if loc.Name == h.name {
		<-ctx.Done()
	}
	return "", ctx.Err()
}

func TestALocationThatHangsLeavesTheTimeOfOthers(t *testing.T) {
	b, _, open := inBucket(t)
	b.objects = append(b.objects, newLocation("away", "backups"))
	b.adapt = func(c *doctor.Config) { c.Locations, c.Timeout = &hanging{buckets: open, name: "away"}, 5*time.Second }
	found := b.runCheck("locations")
	requireFinding(t, doctor.Failed, found, "away", context.DeadlineExceeded.Error())
	requireFinding(t, doctor.OK, found, "default: ")
}

func TestClocks(t *testing.T) {
	for off, status := range map[time.Duration]doctor.Status{
		0: doctor.OK, 59 * time.Second: doctor.OK, 2 * time.Minute: doctor.Warning, -2 * time.Minute: doctor.Warning, time.Hour: doctor.Failed, -time.Hour: doctor.Failed,
	} {
		b, store, open := inBucket(t)
		now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		store.Clock = clocktesting.NewFakePassiveClock(now.Add(off))
		b.adapt = func(c *doctor.Config) { c.Locations, c.Clock = open, clocktesting.NewFakePassiveClock(now) }
		found := b.runCheck("locations")
		if status == doctor.OK {
			requireFine(t, found)
			continue
		}
		requireFinding(t, status, found, "clocks")
	}
}

func TestLocationsThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		err           error
		words, remedy string
	}{
		{objectstore.ErrNoBucket, "bucket does not exist", "create the bucket"}, {objectstore.ErrAccess, "denied", "keys in the Secret"},
		{objectstore.ErrReadOnly, "read-only", "writable"}, {errgrpc.Field("spec.config", "unknown key"), "unknown key", "correct spec.config"},
		{errors.New("connection refused"), "refused", "check the address"},
	} {
		b, store, open := inBucket(t)
		open.err = c.err
		found := b.runCheck("locations")
		requireFinding(t, doctor.Failed, found, "default", c.words)
		require.Contains(t, found[0].Remedy, c.remedy)
		requireUntouched(t, store)
	}
	b, _, open := inBucket(t)
	open.err = errForbidden
	requireFinding(t, doctor.Skipped, b.runCheck("locations"), "cannot be read by you")
}

func TestLocations(t *testing.T) {
	b, _, _ := inBucket(t)
	b.objects = nil
	requireFinding(t, doctor.Warning, b.runCheck("locations"), "no BackupStorageLocation")

	b, _, open := inBucket(t)
	open.note = "conditions are ignored"
	requireFinding(t, doctor.Warning, b.runCheck("locations"), "conditions are ignored")

	none := newLocation("plain", "backups")
	none.Spec.Default = false
	b, _, _ = inBucket(t)
	b.objects = asObjects([]*velerov1.BackupStorageLocation{none})
	requireFinding(t, doctor.Warning, b.runCheck("locations"), "default")

	away := newLocation("default", "backups")
	away.Status.Phase, away.Status.Message = velerov1.LocationPhaseUnavailable, "no route"
	b, _, _ = inBucket(t)
	b.objects = asObjects([]*velerov1.BackupStorageLocation{away})
	requireFinding(t, doctor.Warning, b.runCheck("locations"), "no route")

	b.err = func(verb string, _ any) error { return errForbidden }
	requireFinding(t, doctor.Failed, b.runCheck("locations"), "cannot be listed")
}

func TestAReadOnlyLocationIsNotWrittenTo(t *testing.T) {
	b, store, _ := inBucket(t)
	loc := newLocation("default", "backups")
	loc.Spec.AccessMode = velerov1.LocationModeReadOnly
	b.objects = asObjects([]*velerov1.BackupStorageLocation{loc})
	requireFine(t, b.runCheck("locations"))
	require.Zero(t, store.Calls(memstore.OpPut)+store.Calls(memstore.OpCreate)+store.Calls(memstore.OpCompose)+store.Calls(memstore.OpDelete))
}

// The directory of a file location is in the Pods; one of the same name here is another.
func TestADirectoryOfPodsIsNotLookedForHere(t *testing.T) {
	b, store, _ := inBucket(t)
	loc := newLocation("default", "backups")
	loc.Spec.Provider = holdfast.ProviderFile
	b.objects = append(asObjects(chartDeployments()), loc)
	requireFinding(t, doctor.Skipped, b.runCheck("locations"), "in the Pods")
	require.Zero(t, store.Calls(memstore.OpPut))
	b.objects = asObjects([]*velerov1.BackupStorageLocation{loc})
	requireFine(t, b.runCheck("locations"))
}

// A check whose time is over still removes what it wrote.
func TestWhatWasWrittenIsRemovedWhenTimeIsOver(t *testing.T) {
	b, store, open := inBucket(t)
	b.adapt = func(c *doctor.Config) { c.Locations, c.Timeout = open, 300*time.Millisecond }
	open.store = &stuck{Store: store}
	require.NotEmpty(t, findingsWith(doctor.Failed, b.runCheck("locations")))
	requireUntouched(t, store)
}

// stuck hangs in each composition.
type stuck struct{ objectstore.Store }

// Compose waits for the end of the call.
func (s *stuck) Compose(ctx context.Context, key string, _ []objectstore.Source) (objectstore.Info, error) {
	if err := objectstore.PutBytes(context.WithoutCancel(ctx), s.Store, key, bytes.Repeat([]byte("x"), 8)); err != nil {
		return objectstore.Info{}, err
	}
	<-ctx.Done()
	return objectstore.Info{}, ctx.Err()
}
