package rawlist

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlist"
)

// endless answers every request with one page of that many items, whatever the limit.
type endless struct {
	items, size int
	lastFirst   bool // metadata after the items, as for custom resources
	requests    atomic.Int32
}

func (e *endless) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.requests.Add(1)
	out := bufio.NewWriter(w)
	defer func() { _ = out.Flush() }()
	const meta = `"metadata":{"resourceVersion":"7"}`
	_, _ = out.WriteString(`{"kind":"ThingList","apiVersion":"v1",`)
	if !e.lastFirst {
		_, _ = out.WriteString(meta + `,`)
	}
	_, _ = out.WriteString(`"items":[`)
	filler := strings.Repeat("x", e.size)
	for i := range e.items {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		_, err := fmt.Fprintf(out, `{"metadata":{"name":"o-%07d","namespace":"n"},"data":%q}`, i, filler)
		if err != nil {
			return
		}
	}
	_, _ = out.WriteString(`]`)
	if e.lastFirst {
		_, _ = out.WriteString(`,` + meta)
	}
	_, _ = out.WriteString(`}`)
}

// liveMemory is the memory in use after a collection.
func liveMemory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// weigher is a sink that measures what is in use while items come.
type weigher struct {
	lastPage
	every, n   int
	base, peak uint64
}

func (w *weigher) Item(jsonlist.Item) error {
	if w.n++; w.n%w.every == 0 {
		w.peak = max(w.peak, liveMemory())
	}
	return nil
}

// grownBytes is how much more was in use at the peak than before.
func (w *weigher) grownBytes() uint64 { return max(w.peak, w.base) - w.base }

func startServer(t *testing.T, h http.Handler, opts Options) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	opts.Clock, opts.Dir = fastClock{}, t.TempDir()
	c, err := New(&rest.Config{Host: srv.URL}, opts)
	require.NoError(t, err)
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// An aggregated server that ignores limits sends its whole list as the first page, which was kept
// in memory until its revision was known.
func TestAPageThatIgnoresItsLimitIsNotHeld(t *testing.T) {
	for _, lastFirst := range []bool{false, true} {
		server := &endless{items: 16 << 10, size: 2 << 10, lastFirst: lastFirst} // 32 MiB
		c := startServer(t, server, Options{})
		w := &weigher{every: 4 << 10, base: liveMemory()}
		require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Aggregated: true}, w))
		require.Equal(t, server.items, w.n)
		require.Less(t, w.grownBytes(), uint64(8<<20), "metadata last: %v", lastFirst)
	}
}

func TestAPageIsBounded(t *testing.T) {
	for _, lastFirst := range []bool{false, true} {
		server := &endless{items: 1 << 10, size: 4 << 10, lastFirst: lastFirst}
		c := startServer(t, server, Options{MaxPageBytes: 1 << 20})
		require.ErrorIs(t, c.List(t.Context(), Request{Resource: configMaps, Aggregated: true}, &weigher{every: 1 << 20}), ErrPageTooLarge)
		require.EqualValues(t, 1, server.requests.Load(), "it would be as large again")
	}
}

// Lists of large items at the same time cost the memory of one of them: four workers that met such
// kinds together held four times as much.
func TestLargeItemsComeOneAtATime(t *testing.T) {
	for size, want := range map[int]int{7 << 20: 1, 500 << 10: 0} {
		c := startServer(t, &endless{items: 3, size: size}, Options{})
		var group sync.WaitGroup
		for _, revision := range []string{"7", "7", "7", ""} {
			group.Go(func() {
				require.NoError(t, c.List(t.Context(), Request{Resource: configMaps, Revision: revision}, &holder{t: t, c: c, want: want}))
			})
		}
		group.Wait()
		require.Empty(t, c.large)
	}
}

// holder requires that a list has the turn, or that none has.
type holder struct {
	lastPage
	t    *testing.T
	c    *Client
	want int
}

func (h *holder) Item(jsonlist.Item) error {
	require.Len(h.t, h.c.large, h.want)
	return nil
}

func TestWaitingForALargeItemEndsWithItsContext(t *testing.T) {
	c := startServer(t, &endless{items: 1, size: 4 << 20}, Options{})
	c.large <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.List(ctx, Request{Resource: configMaps, Revision: "7"}, &weigher{every: 10}) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
