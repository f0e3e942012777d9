package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/job/jobtest"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
)

var since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func backupEntry(uid string, namespaces ...string) ledger.Entry {
	return ledger.Entry{UID: types.UID(uid), Kind: ledger.KindBackup, Namespace: "velero", Name: "b-" + uid, Namespaces: namespaces, Since: since}
}

func restoreEntry(uid string, namespaces ...string) ledger.Entry {
	e := backupEntry(uid, namespaces...)
	e.Kind, e.Name = ledger.KindRestore, "r-"+uid
	return e
}

// newShakyClient fails every write with probability p, half of the time after it took effect.
func newShakyClient(t *testing.T, p float64) client.Client {
	t.Helper()
	random := jobtest.Random(t)
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, ledger.Name, errors.New("injected"))
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if random.Float64() >= p {
				return c.Update(ctx, obj, opts...)
			}
			if random.IntN(2) == 0 {
				if err := c.Update(ctx, obj, opts...); err != nil {
					return err
				}
			}
			return conflict
		},
	}).Build()
}

func TestAdmitGetListWithdraw(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	_, found, err := l.Get(t.Context(), "1")
	require.NoError(t, err)
	require.False(t, found, "an absent ConfigMap is an empty ledger")
	require.NoError(t, l.Withdraw(t.Context(), backupEntry("1")))

	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("1", "b", "a", "b"), ledger.Limits{Backups: 2}))
	later := restoreEntry("0", "c")
	later.Since = since.Add(time.Second)
	require.NoError(t, jobtest.Admit(t.Context(), l, later, ledger.Limits{}))
	e, found, err := l.Get(t.Context(), "1")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, backupEntry("1", "a", "b"), e)

	again := backupEntry("1", "c", "z")
	stored, err := l.Admit(t.Context(), again, ledger.Limits{Backups: 1})
	require.NoError(t, err, "the same UID is admitted already")
	require.Equal(t, e, stored, "the first entry stands")
	entries, err := l.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []ledger.Entry{backupEntry("1", "a", "b"), later}, entries, "oldest first, unchanged")

	require.NoError(t, l.Withdraw(t.Context(), backupEntry("1")))
	entries, err = l.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []ledger.Entry{later}, entries)
}

func TestSeveralEntriesLeaveInOneWrite(t *testing.T) {
	writes := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		writes++
		return c.Update(ctx, o, options...)
	}})
	l := ledger.New(c, c, "velero")
	for _, uid := range []string{"1", "2", "3"} {
		require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry(uid, uid), ledger.Limits{}))
	}
	writes = 0
	require.NoError(t, l.Withdraw(t.Context(), backupEntry("1"), backupEntry("9"), backupEntry("3")))
	require.Equal(t, 1, writes)
	entries, err := l.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []ledger.Entry{backupEntry("2", "2")}, entries)
	require.NoError(t, l.Withdraw(t.Context(), backupEntry("1"), backupEntry("9")))
	require.Equal(t, 1, writes, "nothing to remove")
}

func TestOverlapNamesWhatIsInTheWay(t *testing.T) {
	for name, tc := range map[string]struct{ running, wanted, shared []string }{
		"shared namespaces":  {[]string{"a", "b", "c"}, []string{"b", "c", "d"}, []string{"b", "c"}},
		"all against one":    {[]string{"*"}, []string{"x"}, []string{"x"}},
		"one against all":    {[]string{"x", "y"}, []string{"*"}, []string{"x", "y"}},
		"all against all":    {[]string{"*"}, []string{"*"}, []string{"*"}},
		"all among others":   {[]string{"q"}, []string{"a", "*"}, []string{"q"}},
		"all against nobody": {[]string{"*"}, nil, []string{"*"}},
		"disjoint":           {[]string{"a", "c"}, []string{"b", "d"}, nil},
		"nothing at all":     {nil, []string{"a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().Build()
			l := ledger.New(c, c, "velero")
			require.NoError(t, jobtest.Admit(t.Context(), l, restoreEntry("1", tc.running...), ledger.Limits{}))
			err := jobtest.Admit(t.Context(), l, backupEntry("2", tc.wanted...), ledger.Limits{Backups: 1})
			if tc.shared == nil {
				require.NoError(t, err)
				return
			}
			var overlap *ledger.OverlapError
			require.ErrorAs(t, err, &overlap)
			require.Equal(t, types.UID("1"), overlap.With.UID)
			require.Equal(t, tc.shared, overlap.Namespaces)
			require.ErrorContains(t, err, "restore r-1 is running on namespaces "+strings.Join(tc.shared, ", "))
		})
	}
}

// A restore may ignore backups that run, and no other job.
func TestARestoreThatIgnoresBackups(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("2", "b"), ledger.Limits{}))
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("1", "a"), ledger.Limits{}))
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("3", "c"), ledger.Limits{}))

	var overlap *ledger.OverlapError
	plain := restoreEntry("4", "a", "b")
	require.ErrorAs(t, jobtest.Admit(t.Context(), l, plain, ledger.Limits{}), &overlap)
	ignoring := plain
	ignoring.IgnoreBackups, ignoring.Beside = true, []string{"made up"}
	require.NoError(t, jobtest.Admit(t.Context(), l, ignoring, ledger.Limits{Backups: 1, Restores: 1}))
	e, found, err := l.Get(t.Context(), "4")
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, e.IgnoreBackups)
	require.Equal(t, []string{"b-1", "b-2"}, e.Beside, "it says beside whom")

	again := restoreEntry("5", "b")
	again.IgnoreBackups = true
	require.ErrorAs(t, jobtest.Admit(t.Context(), l, again, ledger.Limits{}), &overlap)
	require.Equal(t, "r-4", overlap.With.Name, "a running restore is never ignored")
	require.NoError(t, l.Withdraw(t.Context(), backupEntry("1")))
	require.ErrorAs(t, jobtest.Admit(t.Context(), l, backupEntry("6", "a"), ledger.Limits{}), &overlap)
	require.Equal(t, "r-4", overlap.With.Name, "no backup starts beside it")
}

func TestLimitCountsItsOwnKind(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	limits := ledger.Limits{Backups: 1, Restores: 2}
	require.NoError(t, jobtest.Admit(t.Context(), l, restoreEntry("1", "a"), limits))
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("2", "b"), limits))
	require.NoError(t, jobtest.Admit(t.Context(), l, restoreEntry("3", "c"), limits))
	for _, e := range []ledger.Entry{backupEntry("4", "d"), restoreEntry("5", "e")} {
		var full *ledger.FullError
		require.ErrorAs(t, jobtest.Admit(t.Context(), l, e, limits), &full)
		require.Equal(t, e.Kind, full.Kind)
		require.Len(t, full.Running, full.Limit)
	}
}

func TestInvalidEntriesAreNamed(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	for field, e := range map[string]ledger.Entry{
		"uid": {Kind: ledger.KindBackup, Name: "b"}, "kind": {UID: "1", Kind: "Pod", Name: "b"}, "name": {UID: "1", Kind: ledger.KindBackup},
		"ignoreBackups": {UID: "1", Kind: ledger.KindBackup, Name: "b", IgnoreBackups: true},
	} {
		err := jobtest.Admit(t.Context(), l, e, ledger.Limits{})
		require.ErrorIs(t, err, ledger.ErrInvalidEntry)
		require.ErrorContains(t, err, field)
	}
}

// An entry that cannot be read must stop admission, not vanish from it.
func TestUnreadableEntryStopsAdmission(t *testing.T) {
	for _, data := range []map[string]string{
		{"job.1": "{"}, {"job.1": `{"uid":"2","kind":"Backup","name":"b"}`}, {"job.1": `{"uid":"1","kind":"Pod","name":"b"}`},
	} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: ledger.Name}, Data: data}
		c := fake.NewClientBuilder().WithObjects(cm).Build()
		require.ErrorContains(t, jobtest.Admit(t.Context(), ledger.New(c, c, "velero"), backupEntry("9", "a"), ledger.Limits{}), "job.1")
	}
}

func TestServerErrorsAreReturned(t *testing.T) {
	boom := errors.New("boom")
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		},
	}).Build()
	l := ledger.New(c, c, "velero")
	require.ErrorIs(t, jobtest.Admit(t.Context(), l, backupEntry("1", "a"), ledger.Limits{}), boom)
	_, _, err := l.Get(t.Context(), "1")
	require.ErrorIs(t, err, boom)
	_, err = l.List(t.Context())
	require.ErrorIs(t, err, boom)
}

func TestCancelledContextEndsTheSwap(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			cancel()
			return apierrors.NewAlreadyExists(schema.GroupResource{}, ledger.Name)
		},
	}).Build()
	require.ErrorIs(t, jobtest.Admit(ctx, ledger.New(c, c, "velero"), backupEntry("1", "a"), ledger.Limits{}), context.Canceled)
}

func TestSequenceIsUniqueAndRising(t *testing.T) {
	c := newShakyClient(t, 0.3)
	var seen sync.Map
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			l, last := ledger.New(c, c, "velero"), int64(0)
			for i := range 20 {
				n, err := l.NextSequences(t.Context(), 1+i%3, 0)
				if err != nil || n <= last {
					t.Errorf("sequence %d after %d: %v", n, last, err)
					return
				}
				for last = n; last <= n+int64(i%3); last++ {
					if _, twice := seen.LoadOrStore(last, true); twice {
						t.Errorf("sequence %d given twice", last)
					}
				}
				last--
			}
		})
	}
	wg.Wait()
}

// occupancy is the witness of TestConcurrentAdmitsNeverOverlap: who holds what, kept apart from the
// ledger's own records.
type occupancy struct {
	sync.Mutex
	holder  map[string]string
	running map[string]int
}

func (o *occupancy) enterEntry(e ledger.Entry, limit int) error {
	o.Lock()
	defer o.Unlock()
	for _, ns := range e.Namespaces {
		if ns == ledger.All && len(o.holder) > 0 {
			return fmt.Errorf("%s took all while %v", e.UID, o.holder)
		}
		for _, key := range []string{ns, ledger.All} {
			if who := o.holder[key]; who != "" {
				return fmt.Errorf("%s and %s both run on %s", e.UID, who, key)
			}
		}
	}
	for _, ns := range e.Namespaces {
		o.holder[ns] = string(e.UID)
	}
	o.running[e.Kind]++
	if o.running[e.Kind] > limit {
		return fmt.Errorf("%d %ss run", o.running[e.Kind], e.Kind)
	}
	return nil
}

func (o *occupancy) leaveEntry(e ledger.Entry) {
	o.Lock()
	defer o.Unlock()
	for _, ns := range e.Namespaces {
		delete(o.holder, ns)
	}
	o.running[e.Kind]--
}

// The promise itself: many schedulers, conflicts and lost answers injected, and never two
// overlapping jobs or one too many.
func TestConcurrentAdmitsNeverOverlap(t *testing.T) {
	c := newShakyClient(t, 0.2)
	witness := &occupancy{holder: map[string]string{}, running: map[string]int{}}
	var admitted, refused sync.Map
	var wg sync.WaitGroup
	for worker := range 12 {
		wg.Go(func() {
			l, random := ledger.New(c, c, "velero"), rand.New(rand.NewPCG(1, uint64(worker)))
			for round := range 30 {
				e := randomEntry(random, fmt.Sprintf("%d-%d", worker, round))
				err := jobtest.Admit(t.Context(), l, e, ledger.Limits{Backups: 3, Restores: 2})
				var full *ledger.FullError
				var overlap *ledger.OverlapError
				if errors.As(err, &full) || errors.As(err, &overlap) {
					refused.Store(e.UID, true)
					continue
				}
				if err == nil {
					err = witness.enterEntry(e, map[string]int{ledger.KindBackup: 3, ledger.KindRestore: 2}[e.Kind])
				}
				if err != nil {
					t.Error(err)
					return
				}
				admitted.Store(e.UID, true)
				witness.leaveEntry(e)
				if err := l.Withdraw(t.Context(), e); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.NotZero(t, mapSize(&admitted), "nothing was admitted")
	require.NotZero(t, mapSize(&refused), "nothing was ever in the way: the test shows nothing")
	left, err := ledger.New(c, c, "velero").List(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

func randomEntry(random *rand.Rand, uid string) ledger.Entry {
	if random.IntN(12) == 0 {
		return backupEntry(uid, ledger.All)
	}
	namespaces := make([]string, 1+random.IntN(3))
	for i := range namespaces {
		namespaces[i] = fmt.Sprintf("ns%d", random.IntN(9))
	}
	if random.IntN(3) == 0 {
		return restoreEntry(uid, namespaces...)
	}
	return backupEntry(uid, namespaces...)
}

func mapSize(m *sync.Map) int {
	n := 0
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// A job passed over may start once the overlapping job has ended: no job behind it is admitted by
// the older list.
func TestAdmitWhileOthersStand(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("1", "a"), ledger.Limits{}))
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("2", "b"), ledger.Limits{}, "1"))
	require.NoError(t, l.Withdraw(t.Context(), backupEntry("1")))
	require.ErrorIs(t, jobtest.Admit(t.Context(), l, backupEntry("3", "c"), ledger.Limits{}, "2", "1"), ledger.ErrMoved)
	require.NoError(t, jobtest.Admit(t.Context(), l, backupEntry("2", "b"), ledger.Limits{}, "1"), "admitted already")
	_, found, err := l.Get(t.Context(), "3")
	require.NoError(t, err)
	require.False(t, found)
}

// What carries the exclude label is outside of a backup of all namespaces, and nothing else is: a
// namespace made later, or a job of cluster-scoped objects alone, overlaps it still.
func TestAllButSome(t *testing.T) {
	but := ledger.AllBut([]string{"y", "x"})
	require.Equal(t, []string{"!x", "!y", "*"}, but)
	require.True(t, ledger.IsAll(but))
	require.Equal(t, []string{"x", "y"}, ledger.ExceptedNamespaces(but))
	for _, tt := range []struct{ a, b, want []string }{
		{but, []string{"x"}, nil},
		{but, []string{"x", "y"}, nil},
		{but, []string{"new", "x"}, []string{"new"}},
		{but, nil, but},
		{but, []string{"*"}, but},
		{but, ledger.AllBut([]string{"z"}), []string{"!x", "!y", "!z", "*"}},
		{[]string{"*"}, []string{"x"}, []string{"x"}},
		{[]string{"*"}, nil, []string{"*"}},
		{[]string{"x"}, nil, nil},
	} {
		require.Equal(t, tt.want, ledger.Overlap(tt.a, tt.b), "%v and %v", tt.a, tt.b)
		require.Equal(t, tt.want, ledger.Overlap(tt.b, tt.a), "%v and %v", tt.b, tt.a)
	}
}

// A list of a megabyte of namespaces is stored in the ledger until the API server refuses every
// write of it, and no job is admitted any more.
func TestTheLedgerStaysBounded(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	many := func(prefix string, bytes int) (names []string) {
		for i := 0; ledger.Size(names) < bytes; i++ {
			names = append(names, fmt.Sprintf("%s-%s-%05d", prefix, strings.Repeat("n", 40), i))
		}
		return names
	}
	huge := ledger.Entry{UID: "huge", Kind: ledger.KindBackup, Namespace: "velero", Name: "huge", Namespaces: many("huge", 1<<20)}
	err := jobtest.Admit(t.Context(), l, huge, ledger.Limits{})
	require.ErrorIs(t, err, ledger.ErrInvalidEntry)
	require.ErrorContains(t, err, "namespaces: ")
	var full *ledger.FullError
	for i := 0; !errors.As(err, &full); i++ {
		require.Less(t, i, 8)
		name := fmt.Sprintf("big%d", i)
		err = jobtest.Admit(t.Context(), l, ledger.Entry{UID: types.UID(name), Kind: ledger.KindBackup, Namespace: "velero", Name: name, Namespaces: many(name, 200<<10)}, ledger.Limits{})
	}
	require.Len(t, full.Running, 4)
	require.ErrorContains(t, err, "no room")
	cm := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "velero", Name: ledger.Name}, cm))
	require.Len(t, cm.Data, 4, "what does not fit is not stored")
}

// A scheduler that decided on an old list takes out the entry it saw, and no other of that job: a
// backup that was admitted again since then runs.
func TestWithdrawLeavesALaterAdmission(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	l := ledger.New(c, c, "velero")
	ctx := t.Context()
	first, second := backupEntry("1", "a"), backupEntry("1", "a")
	second.Since = first.Since.Add(time.Second)
	require.NoError(t, jobtest.Admit(ctx, l, first, ledger.Limits{}))
	require.NoError(t, l.Withdraw(ctx, first))
	require.NoError(t, l.Withdraw(ctx, first), "it is gone")
	require.NoError(t, jobtest.Admit(ctx, l, second, ledger.Limits{}))
	require.NoError(t, l.Withdraw(ctx, first))
	entry, found, err := l.Get(ctx, "1")
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, entry.Since.Equal(second.Since))
}
