package known_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/known"
)

func key(name string) known.Key { return known.KeyOf(schema.GroupKind{Kind: "Pod"}, "a", name) }

func TestKeysTellObjectsApart(t *testing.T) {
	x, again := key("x"), key("x")
	require.Equal(t, x, again)
	seen := map[known.Key]bool{}
	for _, k := range []known.Key{
		key("x"), known.KeyOf(schema.GroupKind{Kind: "Pod"}, "ax", ""), known.KeyOf(schema.GroupKind{Kind: "Poda"}, "", "x"),
		known.KeyOf(schema.GroupKind{Group: "Pod", Kind: "a"}, "x", ""), known.KeyOf(schema.GroupKind{Kind: "Pod"}, "", "ax"),
	} {
		require.False(t, seen[k])
		seen[k] = true
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { key("x") }))
}

func TestAnObjectIsAsideUntilItsBlockJoinsIt(t *testing.T) {
	r := known.New()
	at := known.Place{File: 3, Offset: 9}
	require.True(t, r.Hold(key("x"), at))
	was, given := r.BeginAside(key("x"), 1, false)
	require.Equal(t, known.Waiting, was)
	require.Equal(t, at, given)
	require.True(t, r.Aside(key("x")), "from the moment on in which it does not wait")
	r.End(key("x"), known.Stored)
	place, ok := r.Place(key("x"))
	require.True(t, ok)
	require.Equal(t, at, place)
	_, pending, _ := r.Held(0)
	require.True(t, pending)
	require.Equal(t, 1, r.Pending())
	was, _ = r.BeginAside(key("x"), 2, false)
	require.Equal(t, known.Stored, was)
	r.Join(key("x"))
	require.False(t, r.Aside(key("x")))
	require.Zero(t, r.Pending())
	_, pending, _ = r.Held(0)
	require.False(t, pending)

	// After a takeover the place is learned last.
	r.Settle(known.Stored, key("y"))
	r.SetAside(key("y"))
	require.Zero(t, r.Pending())
	require.False(t, r.Hold(key("y"), at))
	require.Equal(t, 1, r.Pending())
	_, pending, ok = r.Held(1)
	require.True(t, ok)
	require.True(t, pending)

	r.BeginAside(key("z"), 1, false)
	r.End(key("z"), known.Absent)
	require.False(t, r.Aside(key("z")), "what does not exist has no block")
}

func TestAnObjectIsGivenToOne(t *testing.T) {
	r := known.New()
	require.True(t, r.Hold(key("x"), known.Place{File: 3, Offset: 9}))
	require.False(t, r.Hold(key("x"), known.Place{}), "held once")
	require.Equal(t, 1, r.Open())
	was, at := r.Begin(key("x"), 1, false)
	require.True(t, was.Waits(false))
	require.Equal(t, known.Place{File: 3, Offset: 9}, at)
	was, _ = r.Begin(key("x"), 2, true)
	require.Equal(t, known.Busy, was)
	require.False(t, was.Waits(true))
	r.End(key("x"), known.Stored)
	require.Equal(t, known.Stored, r.Fate(key("x")))
	require.Zero(t, r.Open())
	require.False(t, r.Hold(key("x"), known.Place{}))

	_, waits, ok := r.Held(0)
	require.True(t, ok)
	require.False(t, waits)
	_, _, ok = r.Held(1)
	require.False(t, ok)

	r.Settle(known.Unwanted, key("y"))
	was, _ = r.Begin(key("y"), 1, false)
	require.Equal(t, known.Unwanted, was)
	was, _ = r.Begin(key("y"), 1, true)
	require.True(t, was.Waits(true))
}

func TestWaitingEndsWithTheWork(t *testing.T) {
	r := known.New()
	r.Begin(key("x"), 1, false)
	done := make(chan bool)
	go func() {
		ok, err := r.Wait(t.Context(), key("x"), 2)
		done <- ok && err == nil
	}()
	r.End(key("x"), known.Failed)
	require.True(t, <-done)
	ok, err := r.Wait(t.Context(), key("x"), 2)
	require.True(t, ok)
	require.NoError(t, err)

	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	r.Begin(key("y"), 1, false)
	cancel(gone)
	_, err = r.Wait(ctx, key("y"), 2)
	require.ErrorIs(t, err, gone)
}

func TestNobodyWaitsInACircle(t *testing.T) {
	r := known.New()
	r.Begin(key("x"), 1, false)
	ok, err := r.Wait(t.Context(), key("x"), 1)
	require.NoError(t, err)
	require.False(t, ok, "one's own")

	r.Begin(key("y"), 2, false)
	r.Begin(key("z"), 3, false)
	ends := make(chan bool, 2)
	wait := func(name string, worker int) {
		ctx := waiting{t.Context(), make(chan struct{})}
		go func() {
			ok, _ := r.Wait(ctx, key(name), worker)
			ends <- ok
		}()
		<-ctx.begun
	}
	wait("y", 1) // 1 has x and waits for y
	wait("z", 2) // 2 has y and waits for z
	ok, err = r.Wait(t.Context(), key("x"), 3)
	require.NoError(t, err)
	require.False(t, ok, "this closes the circle")
	r.End(key("z"), known.Stored)
	require.True(t, <-ends)
	r.End(key("y"), known.Stored)
	require.True(t, <-ends)
}

// waiting tells that somebody waits, for its end among other things.
type waiting struct {
	context.Context
	begun chan struct{}
}

func (w waiting) Done() <-chan struct{} {
	close(w.begun)
	return w.Context.Done()
}

// Promise P7 leaves 32 bytes for an object.
func TestManyObjectsTakeLittle(t *testing.T) {
	const n = 200_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := known.New()
	for i := range n {
		r.Settle(known.Stored, key(fmt.Sprint(i)))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, float64(after.HeapAlloc-before.HeapAlloc)/n, 24.0)
	require.Equal(t, known.Stored, r.Fate(key("7")))
}
