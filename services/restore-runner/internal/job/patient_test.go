package job

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/manifest"
	"github.com/holdfast-io/holdfast/pkg/tarball"
)

// flaky fails the next reads with err.
type flaky struct {
	tarball.Source
	fail, reads int
	err         error
}

func (f *flaky) Read(context.Context, manifest.Item) ([]byte, error) {
	f.reads++
	if f.fail--; f.fail >= 0 {
		return nil, f.err
	}
	return []byte("body"), nil
}

type hasty struct{ clock.RealClock }

func (hasty) NewTimer(d time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(d / 1000) }

func TestReadsOutlastAStoreThatIsAway(t *testing.T) {
	source := &flaky{err: errors.New("connection reset")}
	p := &patient{Source: source, job: &job{Runner: New(Config{Clock: hasty{}}), log: slog.New(slog.DiscardHandler)}}
	read := func(failures int) (int, error) {
		source.fail, source.reads = failures, 0
		_, err := p.Read(t.Context(), manifest.Item{Path: "resources/x"})
		return source.reads, err
	}
	reads, err := read(storeAttempts - 1)
	require.NoError(t, err)
	require.Equal(t, storeAttempts, reads)

	reads, err = read(storeAttempts)
	require.ErrorContains(t, err, "connection reset")
	require.Equal(t, storeAttempts, reads)
	reads, err = read(1)
	require.Error(t, err)
	require.Equal(t, 1, reads, "nobody waits for a store that stays away")

	_, err = read(0)
	require.NoError(t, err)
	reads, err = read(1)
	require.NoError(t, err)
	require.Equal(t, 2, reads, "it is back")

	source.err = tarball.ErrCorrupt
	reads, err = read(1)
	require.ErrorIs(t, err, tarball.ErrCorrupt)
	require.Equal(t, 1, reads, "damage stays")
}
