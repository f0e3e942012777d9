package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/partwriter"
)

// newWideSetup is a backup of that many namespaces and kinds, all of them empty, in a cluster where a list
// for each of them is cheaper than one of all.
func newWideSetup(t testing.TB, namespaces, others int) *setup {
	t.Helper()
	served := make([]kubetest.Kind, others)
	for i := range served {
		served[i] = kubetest.Kind{Group: "wide.example.com", Version: "v1", Kind: fmt.Sprintf("Kind%03d", i),
			Resource: fmt.Sprintf("kind%03ds", i), Namespaced: true, Custom: true}
	}
	names := make([]string, namespaces)
	for i := range names {
		names[i] = fmt.Sprintf("a-namespace-with-a-name-of-some-length-%05d", i)
	}
	s := newSetup(t, kubetest.New(slices.Concat(served, kinds[1:2])...), velerov1.BackupSpec{}, names...)
	s.job.LiveNamespaces = func(context.Context) (int, error) { return 1 << 20, nil }
	s.job.Store = forgetful{s.store}
	return s
}

// forgetful keeps the keys of what is written and not the bytes.
type forgetful struct{ *memstore.Store }

func (f forgetful) Create(ctx context.Context, key string, body io.ReadSeeker, _ int64) error {
	if _, err := io.Copy(io.Discard, body); err != nil {
		return err
	}
	return f.Store.Create(ctx, key, strings.NewReader(""), 0)
}

// nothing lists no objects, and measures the memory in use now and then.
type nothing struct {
	mu    sync.Mutex
	lists int
	every int
	peak  uint64
}

func (n *nothing) List(_ context.Context, _ rawlist.Request, sink rawlist.Sink) error {
	n.mu.Lock()
	if n.lists++; n.every > 0 && n.lists%n.every == 0 {
		n.peak = max(n.peak, liveMemory())
	}
	n.mu.Unlock()
	return errors.Join(sink.Begin("1000"), sink.Commit(rawlist.Page{Revision: "1000"}))
}

// liveMemory is the memory in use after a collection.
func liveMemory() uint64 {
	runtime.GC()
	runtime.GC() // what pools keep over one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// All lists of a backup were made at once and named in one record each: 160 MiB for 1,000
// namespaces and 200 kinds, before a single object.
func TestListsTakeNoMemoryBeforeTheyBegin(t *testing.T) {
	s := newWideSetup(t, 1000, 200)
	lists := &nothing{every: 25_000}
	s.cfg.Lister = lists
	base := liveMemory()
	_, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Greater(t, lists.lists, 200_000)
	require.Less(t, max(lists.peak, base)-base, uint64(6<<20))
}

// A record has a bounded number of lists, also where they are empty.
func TestARecordTellsOfABoundedNumberOfLists(t *testing.T) {
	s := newWideSetup(t, 100, 50)
	s.job.Store = s.store
	s.cfg.Lister = &nothing{}
	res, err := Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	got, units := s.readStored(t, res), 0
	for i := range got.records {
		units += len(got.records[i].Ranges)
		require.LessOrEqual(t, len(got.records[i].Ranges), partwriter.MaxRanges)
	}
	require.Equal(t, 100*50+1, units)
}

// A holder that takes over lists what is not done, in the same units.
func TestASpreadPlanIsTakenOver(t *testing.T) {
	s := newWideSetup(t, 20, 10)
	s.job.Store = s.store
	s.cfg.Workers = 1
	stop, first := make(chan struct{}), &nothing{}
	s.job.Stop = stop
	s.cfg.Lister = listerFunc(func(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
		if first.lists == 77 {
			close(stop)
		}
		return first.List(ctx, req, sink)
	})
	_, err := Run(t.Context(), s.cfg, s.job)
	require.ErrorIs(t, err, ErrStopped)
	s.job.Epoch, s.job.Stop, s.job.Progress = 2, nil, &Progress{}
	second := &nothing{}
	s.cfg.Lister = second
	s.job.LiveNamespaces = func(context.Context) (int, error) { return 0, errors.New("it was counted before") }
	_, err = Run(t.Context(), s.cfg, s.job)
	require.NoError(t, err)
	require.Equal(t, 20*10+1+2, first.lists+second.lists, "each holder reads the rules of references")
}

type listerFunc func(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error

func (f listerFunc) List(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
	return f(ctx, req, sink)
}

// BenchmarkUnits collects 20,000 lists without objects.
func BenchmarkUnits(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s := newWideSetup(b, 400, 50)
		s.cfg.Lister = &nothing{}
		b.StartTimer()
		if _, err := Run(b.Context(), s.cfg, s.job); err != nil {
			b.Fatal(err)
		}
	}
}
