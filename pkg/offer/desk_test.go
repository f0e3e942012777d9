package offer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/offer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// work is what the desk's jobs do.
type work struct {
	mu   sync.Mutex
	ran  []string
	most int // at once
	now  int
	do   func(ctx context.Context, name string) error
}

func (w *work) run(ctx context.Context, name string, _ types.UID) error {
	w.mu.Lock()
	w.ran = append(w.ran, name)
	w.now++
	w.most = max(w.most, w.now)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}()
	return w.do(ctx, name)
}

func (w *work) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ran)
}

// signal is a log that tells of each line.
type signal chan struct{}

// Write implements io.Writer.
func (s signal) Write(line []byte) (int, error) {
	s <- struct{}{}
	return len(line), nil
}

func open(t *testing.T, do func(ctx context.Context, name string) error, log io.Writer) (*offer.Desk, *work, *clocktesting.FakeClock, func()) {
	t.Helper()
	w := &work{do: do}
	clk := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
	d := offer.New(offer.Config{Run: w.run, AtOnce: 2, Clock: clk, Log: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx) }()
	return d, w, clk, func() {
		cancel()
		require.NoError(t, <-done)
	}
}

func until(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, time.Minute, time.Millisecond)
}

func TestWaitingIsCountedFromItsBegin(t *testing.T) {
	d, _, clk, stop := open(t, nil, io.Discard)
	defer stop()
	key := types.NamespacedName{Namespace: "velero", Name: "b"}
	require.Zero(t, d.Waits(key, true))
	clk.Step(offer.Period)
	require.Equal(t, offer.Period, d.Waits(key, true))
	require.Zero(t, d.Waits(key, false))
	clk.Step(offer.Period)
	require.Zero(t, d.Waits(key, true), "it waits anew")
}

// A job that fails at once is handed over at once: it must not be run again and again.
func TestAJobThatFailsIsNotRunInALoop(t *testing.T) {
	for name, end := range map[string]func() error{
		"an error": func() error { return errors.New("no bucket") },
		"a panic":  func() error { panic("a defect") },
	} {
		t.Run(name, func(t *testing.T) {
			noted := make(chan struct{}, 10)
			d, w, clk, stop := open(t, func(context.Context, string) error { return end() }, signal(noted))
			defer stop()
			d.Offer(offer.Job{Name: "b", UID: "1"})
			<-noted
			for range 5 {
				d.Offer(offer.Job{Name: "b", UID: "1"})
			}
			require.Empty(t, d.Offered())
			clk.Step(time.Minute)
			d.Offer(offer.Job{Name: "b", UID: "1"})
			<-noted
			require.Equal(t, 2, w.count())
		})
	}
}

func TestAJobSomebodyHoldsIsNoFailure(t *testing.T) {
	d, w, _, stop := open(t, func(context.Context, string) error { return fmt.Errorf("claim: %w", &claim.HeldError{Holder: "other"}) }, io.Discard)
	defer stop()
	for n := 1; n <= 3; n++ {
		d.Offer(offer.Job{Name: "b", UID: "1"})
		until(t, func() bool { return w.count() == n })
	}
}

func TestOnlySoManyAtOnceAndServeWaitsForThem(t *testing.T) {
	d, w, _, stop := open(t, func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}, io.Discard)
	for n := range 1000 {
		d.Offer(offer.Job{Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(n))})
	}
	until(t, func() bool { return w.count() == 2 })
	stop()
	require.Zero(t, w.now)
	require.Equal(t, 2, w.most)
	require.Equal(t, 2, w.count(), "what was not begun is left to others")
}
