package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost/selfplugin"
)

func TestMain(m *testing.M) {
	if os.Getenv("VELERO_PLUGIN") != "" {
		if err := ServePlugin(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// startBed starts a bed that lasts as long as the test.
func startBed(t *testing.T, binaries string) (*Bed, error) {
	t.Helper()
	b, err := Start(t.Context(), Config{Dir: t.TempDir(), Binaries: binaries, Plugins: selfplugin.Directory(t, Plugins...), Log: t.Output()})
	if err == nil {
		t.Cleanup(b.Close)
	}
	return b, err
}

// parallelBeds is how many cases run at once, each on a bed of its own: they wait for timeouts more than
// they compute. A part runs on one, because other tests run beside it.
func parallelBeds() int {
	if os.Getenv("FAULT_PART") == "all" {
		return 2
	}
	return 1
}

// bedPool lends beds to tests that run at once. Each bed starts when it is first needed.
type bedPool chan func() (*Bed, error)

func newPool(t *testing.T) bedPool {
	t.Helper()
	p := make(bedPool, parallelBeds())
	for range parallelBeds() {
		p <- sync.OnceValues(func() (*Bed, error) { return startBed(t, "") })
	}
	return p
}

// withBed lets a test, which from now on runs beside others, use a bed for itself.
func (p bedPool) withBed(t *testing.T, use func(*Bed) error) {
	t.Helper()
	t.Parallel()
	bed := <-p
	defer func() { p <- bed }()
	b, err := bed()
	require.NoError(t, err)
	require.NoError(t, use(b))
}

// chosenPart is what this run covers, see ParsePart.
func chosenPart(t *testing.T) *Chosen {
	t.Helper()
	part, err := ParsePart(os.Getenv("FAULT_PART"))
	require.NoError(t, err)
	c, err := Choose(part)
	require.NoError(t, err)
	t.Logf("%d of %d kills, %d of %d pauses", len(c.Kills), len(Matrix), len(c.Pauses), len(Pauses))
	return c
}

func TestFaults(t *testing.T) {
	p, c := newPool(t), chosenPart(t)
	t.Run("undisturbed runs are alike", func(t *testing.T) {
		for _, name := range c.Undisturbed {
			t.Run(name, func(t *testing.T) { p.withBed(t, func(b *Bed) error { return b.Repeat(t.Context(), name) }) })
		}
	})
	// The job of the killed process ends as if nothing had happened.
	t.Run("kill", func(t *testing.T) {
		for _, c := range c.Kills {
			t.Run(c.String(), func(t *testing.T) { p.withBed(t, func(b *Bed) error { return b.Kill(t.Context(), c) }) })
		}
	})
	// A process that was stopped until its job was done elsewhere does no harm when it goes on.
	t.Run("pause", func(t *testing.T) {
		for _, c := range c.Pauses {
			t.Run(c.String(), func(t *testing.T) { p.withBed(t, func(b *Bed) error { return b.Pause(t.Context(), c) }) })
		}
	})
	// A leader that was stopped in the middle of an admission admits nothing beside the other's.
	t.Run("leader", func(t *testing.T) {
		for _, c := range c.Leaders {
			t.Run(c.String(), func(t *testing.T) { p.withBed(t, func(b *Bed) error { return b.PauseLeader(t.Context(), c) }) })
		}
	})
}

// TestMutantsAreCaught shows that the suite can fail.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range chosenPart(t).Mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			binaries := filepath.Join(t.TempDir(), "bin")
			require.NoError(t, m.Build(t.Context(), binaries, t.TempDir()))
			b, err := startBed(t, binaries)
			require.NoError(t, err)
			_, err = b.Baseline(t.Context(), m.Case.Scenario)
			require.NoError(t, err, "undisturbed, the mistake does not show")
			err = m.Try(t.Context(), b)
			require.True(t, Caught(err), "%v", err)
			t.Log(err)
		})
	}
}
