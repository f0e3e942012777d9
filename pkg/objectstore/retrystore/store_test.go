package retrystore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/storetest"
)

// leaping is a clock whose timers fire at once: their time has passed then.
type leaping struct{ *clocktesting.FakeClock }

func (l leaping) NewTimer(d time.Duration) clock.Timer {
	t := l.FakeClock.NewTimer(d)
	l.Step(d)
	return t
}

var errAway = errors.New("connection refused")

func newStore(budget time.Duration) (*Store, *memstore.Store) {
	mem := memstore.New()
	return &Store{Store: mem, Clock: leaping{clocktesting.NewFakeClock(time.Unix(1700000000, 0))}, Log: slog.New(slog.DiscardHandler), Budget: budget}, mem
}

// failFirst fails the first n calls of an operation.
func failFirst(op memstore.Op, n int) memstore.Fault {
	return func(o memstore.Op, _ string) error {
		if o == op && n > 0 {
			n--
			return errAway
		}
		return nil
	}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) objectstore.Store {
		s, _ := newStore(time.Minute)
		return s
	})
}

// Reads of an opened object are left alone: one that is resumed does not see the version that Get
// saw.
func TestConformanceWhereFirstAttemptsFail(t *testing.T) {
	storetest.Run(t, func(testing.TB) objectstore.Store {
		s, mem := newStore(time.Minute)
		mem.Inject(firstAttempts())
		return s
	})
}

// firstAttempts fails the first call of each kind about a key.
func firstAttempts() memstore.Fault {
	type call struct {
		op  memstore.Op
		key string
	}
	var mu sync.Mutex
	failed := map[call]bool{}
	return func(op memstore.Op, key string) error {
		mu.Lock()
		defer mu.Unlock()
		c := call{op, key}
		if failed[c] || op == memstore.OpRead {
			return nil
		}
		failed[c] = true
		return errAway
	}
}

func TestClassification(t *testing.T) {
	for err, want := range map[error]errorClass{
		errAway: transient, context.DeadlineExceeded: transient,
		objectstore.ErrNotFound: answered, objectstore.ErrExists: answered,
		objectstore.ErrReadOnly: refused, objectstore.ErrInvalidKey: refused, objectstore.ErrInvalidRange: refused,
		objectstore.ErrSize: refused, objectstore.ErrNoBucket: refused, objectstore.ErrAccess: refused,
	} {
		require.Equal(t, want, classifyError(fmt.Errorf("get k: %w", err)), err)
		require.Equal(t, want == refused, Refused(err), err)
	}
}

func TestEveryCallIsRetried(t *testing.T) {
	s, mem := newStore(time.Minute)
	mem.Set("k", []byte("abc"))
	calls := map[memstore.Op]func() error{
		memstore.OpStat: func() error { _, err := s.Stat(t.Context(), "k"); return err },
		memstore.OpList: func() error {
			return s.List(t.Context(), "", func(objectstore.Info) error { return nil })
		},
		memstore.OpPut:    func() error { return s.Put(t.Context(), "p", strings.NewReader("x"), 1) },
		memstore.OpCreate: func() error { return s.Create(t.Context(), "c", strings.NewReader("xy"), 2) },
		memstore.OpDelete: func() error { return s.Delete(t.Context(), "gone") },
		memstore.OpCompose: func() error {
			_, err := s.Compose(t.Context(), "m", []objectstore.Source{{Key: "k", Length: -1}})
			return err
		},
		memstore.OpGet: func() error {
			for _, open := range []func() (io.ReadCloser, error){
				func() (io.ReadCloser, error) { return s.Get(t.Context(), "k") },
				func() (io.ReadCloser, error) { return s.GetRange(t.Context(), "k", 0, -1) },
			} {
				body, err := open()
				if err != nil {
					return err
				}
				data, err := io.ReadAll(body)
				if err != nil || string(data) != "abc" {
					return errors.Join(err, errors.New("other content"))
				}
			}
			return nil
		},
	}
	for op, call := range calls {
		mem.Inject(failFirst(op, 3))
		require.NoError(t, call(), op)
	}
	data, _ := mem.Bytes("c")
	require.Equal(t, "xy", string(data), "the reader was rewound")
}

// lostAnswer is a store whose first Create succeeds and says it did not.
type lostAnswer struct {
	objectstore.Store
	lost bool
}

func (l *lostAnswer) Create(ctx context.Context, key string, r io.ReadSeeker, size int64) error {
	err := l.Store.Create(ctx, key, r, size)
	if err == nil && !l.lost {
		l.lost = true
		return errAway
	}
	return err
}

func TestCreateRecognizesItsOwnObject(t *testing.T) {
	s, mem := newStore(time.Minute)
	s.Store = &lostAnswer{Store: mem}
	require.NoError(t, s.Create(t.Context(), "k", strings.NewReader("mine"), 4))
	require.ErrorIs(t, s.Create(t.Context(), "k", strings.NewReader("mine"), 4), objectstore.ErrExists, "a first attempt is not forgiven")

	mem.Set("other", []byte("them"))
	mem.Inject(failFirst(memstore.OpCreate, 1))
	require.ErrorIs(t, s.Create(t.Context(), "other", strings.NewReader("mine"), 4), objectstore.ErrExists)
}

// tearing is a store whose bodies break off after a few bytes, as often as the test sets.
type tearing struct {
	objectstore.Store
	tears int
}

func (s *tearing) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return s.GetRange(ctx, key, 0, -1)
}

func (s *tearing) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	whole, err := s.Store.GetRange(ctx, key, off, n)
	if err != nil || s.tears == 0 {
		return whole, err
	}
	s.tears--
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(whole, 3), iotest.ErrReader(errAway)), whole}, nil
}

func TestABodyThatBreaksOffGoesOn(t *testing.T) {
	s, mem := newStore(time.Minute)
	mem.Set("k", []byte("abcdefghijklmnop"))
	for name, tt := range map[string]struct {
		open func() (io.ReadCloser, error)
		want string
	}{
		"whole":         {func() (io.ReadCloser, error) { return s.Get(t.Context(), "k") }, "abcdefghijklmnop"},
		"to the end":    {func() (io.ReadCloser, error) { return s.GetRange(t.Context(), "k", 4, -1) }, "efghijklmnop"},
		"a range":       {func() (io.ReadCloser, error) { return s.GetRange(t.Context(), "k", 2, 10) }, "cdefghijkl"},
		"just the tear": {func() (io.ReadCloser, error) { return s.GetRange(t.Context(), "k", 2, 3) }, "cde"},
	} {
		s.Store = &tearing{Store: mem, tears: 3}
		open, err := tt.open()
		require.NoError(t, err, name)
		got, err := io.ReadAll(open)
		require.NoError(t, err, name)
		require.Equal(t, tt.want, string(got), name)
		require.NoError(t, open.Close())
	}

	s.Budget = 10 * time.Millisecond
	s.Store = &tearing{Store: mem, tears: 1}
	open, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	mem.Inject(failFirst(memstore.OpGet, 1<<30))
	_, err = io.ReadAll(open)
	require.ErrorIs(t, err, errAway)
	require.ErrorContains(t, err, "gave up")
	require.NoError(t, open.Close())
}

func TestGivesUp(t *testing.T) {
	s, mem := newStore(10 * time.Millisecond)
	mem.Inject(failFirst(memstore.OpStat, 1<<30))
	_, err := s.Stat(t.Context(), "k")
	require.ErrorIs(t, err, errAway)
	require.ErrorContains(t, err, "gave up")

	mem.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
	before := mem.Calls(memstore.OpGet)
	_, err = s.Get(t.Context(), "k")
	require.ErrorIs(t, err, objectstore.ErrAccess)
	require.Equal(t, before+1, mem.Calls(memstore.OpGet), "a refusal is final")
}

// A failing call is reported with the time since its first failure, and a refused one is not
// reported.
func TestFailuresAreTold(t *testing.T) {
	s, mem := newStore(time.Minute)
	var since []time.Duration
	s.Failing = func(d time.Duration) { since = append(since, d) }
	mem.Set("k", []byte("abc"))
	mem.Inject(failFirst(memstore.OpStat, 3))
	_, err := s.Stat(t.Context(), "k")
	require.NoError(t, err)
	require.Len(t, since, 3)
	require.Zero(t, since[0])
	require.Greater(t, since[2], since[1])
	mem.Inject(func(memstore.Op, string) error { return objectstore.ErrAccess })
	_, err = s.Stat(t.Context(), "k")
	require.ErrorIs(t, err, objectstore.ErrAccess)
	require.Len(t, since, 3)
}

func TestEqual(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"", "", true}, {"a", "a", true}, {"a", "b", false}, {long, long, true}, {long, long + "y", false}, {long, long[1:], false}} {
		got, err := equalContent(strings.NewReader(tt.a), strings.NewReader(tt.b))
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
}

// An impatient caller waits for one outage once: what it asks for then fails at once, until a call succeeds.
func TestAnImpatientCallerWaitsForAnOutageOnce(t *testing.T) {
	s, mem := newStore(15 * time.Minute)
	s.Impatient = true
	mem.Set("k", []byte("x"))
	calls := 0
	stat := func(failures int) error {
		calls = 0
		mem.Inject(func(memstore.Op, string) error {
			calls++
			if calls <= failures {
				return errAway
			}
			return nil
		})
		_, err := s.Stat(t.Context(), "k")
		return err
	}
	require.NoError(t, stat(40), "about ten minutes")
	require.Equal(t, 41, calls)
	require.ErrorIs(t, stat(1000), errAway)
	require.ErrorIs(t, stat(1), errAway)
	require.Equal(t, 1, calls, "nobody waits for a store that stays away")
	require.NoError(t, stat(0))
	require.NoError(t, stat(1), "it is back")
}

func TestACallThatIsMadeOnceIsNotRetried(t *testing.T) {
	s, mem := newStore(time.Minute)
	mem.Set("k", []byte("x"))
	mem.Inject(failFirst(memstore.OpStat, 1))
	_, err := s.Stat(Once(t.Context()), "k")
	require.ErrorIs(t, err, errAway)
}
