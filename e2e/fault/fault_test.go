package fault

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a bed that lasts as long as the test.
func start(t *testing.T, binaries string) (*Bed, error) {
	t.Helper()
	b, err := Start(t.Context(), Config{Dir: t.TempDir(), Binaries: binaries, Log: t.Output()})
	if err == nil {
		t.Cleanup(b.Close)
	}
	return b, err
}

// beds is how many cases run at once, each on a bed of its own: they wait for timeouts more than they compute. A part runs on one, because other tests
// run beside it.
func beds() int {
	if os.Getenv("FAULT_PART") == "all" {
		return 2
	}
	return 1
}

// pool lends beds to tests that run at once. Each bed starts when it is first needed.
type pool chan func() (*Bed, error)

func newPool(t *testing.T) pool {
	t.Helper()
	p := make(pool, beds())
	for range beds() {
		p <- sync.OnceValues(func() (*Bed, error) { return start(t, "") })
	}
	return p
}

// with lets a test, which from now on runs beside others, use a bed for itself.
func (p pool) with(t *testing.T, use func(*Bed) error) {
	t.Helper()
	t.Parallel()
	bed := <-p
	defer func() { p <- bed }()
	b, err := bed()
	require.NoError(t, err)
	require.NoError(t, use(b))
}

// today chooses what this run covers: all of it, or another fifth each day.
func today[T any](t *testing.T, all []T, name func(T) string) []T {
	t.Helper()
	chosen, err := Select(all, name, os.Getenv("FAULT_PART"), time.Now())
	require.NoError(t, err)
	t.Logf("%d of %d cases; FAULT_PART=all runs all, FAULT_PART=1/%d to %d/%d a part, any other text what matches", len(chosen), len(all), parts, parts, parts)
	return chosen
}

func TestFaults(t *testing.T) {
	p := newPool(t)
	t.Run("undisturbed runs are alike", func(t *testing.T) {
		for _, name := range today(t, slices.Sorted(maps.Keys(Scenarios)), func(s string) string { return "undisturbed/" + s }) {
			t.Run(name, func(t *testing.T) { p.with(t, func(b *Bed) error { return b.Repeat(t.Context(), name) }) })
		}
	})
	// The job of the killed process ends as if nothing had happened.
	t.Run("kill", func(t *testing.T) {
		for _, c := range today(t, Matrix, Case.String) {
			t.Run(c.String(), func(t *testing.T) { p.with(t, func(b *Bed) error { return b.Kill(t.Context(), c) }) })
		}
	})
	// A process that was stopped until its job was done elsewhere does no harm when it goes on.
	t.Run("pause", func(t *testing.T) {
		for _, c := range today(t, Pauses, func(c Case) string { return "pause/" + c.String() }) {
			t.Run(c.String(), func(t *testing.T) { p.with(t, func(b *Bed) error { return b.Pause(t.Context(), c) }) })
		}
	})
	// A leader that was stopped in the middle of an admission admits nothing beside the other's.
	t.Run("leader", func(t *testing.T) {
		for _, point := range today(t, Admissions, func(point string) string { return "leader/" + point }) {
			t.Run(point, func(t *testing.T) { p.with(t, func(b *Bed) error { return b.PauseLeader(t.Context(), point) }) })
		}
	})
}

// TestMutantsAreCaught shows that the suite can fail.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range today(t, Mutants, func(m Mutant) string { return m.Tag }) {
		t.Run(m.Tag, func(t *testing.T) {
			t.Parallel()
			binaries := filepath.Join(t.TempDir(), "bin")
			require.NoError(t, m.Build(t.Context(), binaries))
			b, err := start(t, binaries)
			require.NoError(t, err)
			_, err = b.Baseline(t.Context(), m.Case.Scenario)
			require.NoError(t, err, "undisturbed, the mistake does not show")
			err = m.Try(t.Context(), b)
			require.True(t, Caught(err), "%v", err)
			t.Log(err)
		})
	}
}
