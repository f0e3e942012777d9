package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/tarball"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
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

// leaping is a clock on which every pause passes at once.
type leaping struct{ *clocktesting.FakeClock }

func (l leaping) NewTimer(d time.Duration) clock.Timer {
	timer := l.FakeClock.NewTimer(d)
	l.Step(d)
	return timer
}

func TestReadsOutlastAStoreThatIsAway(t *testing.T) {
	source := &flaky{err: errors.New("connection reset")}
	p := &retryingSource{Source: source, retry: &storeRetry{
		clock: leaping{clocktesting.NewFakeClock(time.Now())}, log: slog.New(slog.DiscardHandler), budget: 15 * time.Minute,
		still: func(context.Context) error { return nil },
	}}
	read := func(failures int) (int, error) {
		source.fail, source.reads = failures, 0
		_, err := p.Read(t.Context(), manifest.Item{Path: "resources/x"})
		return source.reads, err
	}
	reads, err := read(40) // about ten minutes
	require.NoError(t, err)
	require.Equal(t, 41, reads)

	_, err = read(1000)
	require.ErrorContains(t, err, "connection reset")
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

	source.err = fmt.Errorf("read: %w", objectstore.ErrAccess)
	reads, err = read(1)
	require.ErrorIs(t, err, objectstore.ErrAccess)
	require.Equal(t, 1, reads, "a refusal stays")
}
