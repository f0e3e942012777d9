package cut

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// clusterAt counts how often its revision was read.
type clusterAt struct {
	mu       sync.Mutex
	revision int
	err      error
}

func (c *clusterAt) Revision(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revision++
	return strconv.Itoa(c.revision), c.err
}

func (c *clusterAt) Shares(context.Context, schema.GroupVersionResource, string, string) (bool, error) {
	return true, nil
}

func TestOneRevisionForAll(t *testing.T) {
	c := New(&clusterAt{}, true)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			r, err := c.Current(t.Context())
			require.NoError(t, err)
			require.Equal(t, "1", r)
		})
	}
	group.Wait()
}

func TestRenewIsShared(t *testing.T) {
	c := New(&clusterAt{}, true)
	_, err := c.Current(t.Context())
	require.NoError(t, err)
	for range 3 {
		r, err := c.Renew(t.Context(), "1")
		require.NoError(t, err)
		require.Equal(t, "2", r, "who sees the same revision expire gets the same new one")
	}
	c.Adopt("1", "9") // too late: 2 came first
	c.Adopt("2", "7")
	c.Adopt("7", "")
	require.Equal(t, []string{"1", "2", "7"}, c.Revisions())
}

func TestOff(t *testing.T) {
	c := New(nil, false)
	for _, f := range []func() (string, error){
		func() (string, error) { return c.Current(t.Context()) },
		func() (string, error) { return c.Renew(t.Context(), "1") },
	} {
		r, err := f()
		require.NoError(t, err)
		require.Empty(t, r)
	}
	c.Adopt("", "5")
	require.Empty(t, c.Revisions())
}

func TestError(t *testing.T) {
	away := errors.New("away")
	_, err := New(&clusterAt{err: away}, true).Current(t.Context())
	require.ErrorIs(t, err, away)
}

// A holder that takes over lists at the revision recorded last; a new one would mix two moments.
func TestARestoredCutGoesOn(t *testing.T) {
	source := &clusterAt{revision: 41}
	c := New(source, true)
	c.Restore([]string{"3", "5"})
	r, err := c.Current(t.Context())
	require.NoError(t, err)
	require.Equal(t, "5", r)
	require.Equal(t, []string{"3", "5"}, c.Revisions())
	require.Equal(t, 41, source.revision, "no revision is read")
	r, err = c.Renew(t.Context(), "5")
	require.NoError(t, err)
	require.Equal(t, "42", r)
}

// An earlier holder that listed without a common revision decided that there is none: one taken now
// would claim a consistency that what is stored already does not have.
func TestACutRestoredFromNothingStaysOff(t *testing.T) {
	source := &clusterAt{}
	c := New(source, true)
	c.Restore(nil)
	r, err := c.Current(t.Context())
	require.NoError(t, err)
	require.Empty(t, r)
	require.Empty(t, c.Revisions())
	require.Zero(t, source.revision, "no revision is read")
}

// A write of the backup returns the newest revision: none is read.
func TestACutThatBeginsAtAKnownRevisionReadsNone(t *testing.T) {
	source := &clusterAt{revision: 41}
	c := New(source, true)
	c.Begin("40")
	c.Begin("41") // the first one stands
	newest, err := c.Newest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "40", newest)
	r, err := c.Current(t.Context())
	require.NoError(t, err)
	require.Equal(t, "40", r)
	require.Equal(t, 41, source.revision)
	r, err = c.Renew(t.Context(), "40")
	require.NoError(t, err)
	require.Equal(t, "42", r)
	require.Equal(t, []string{"40", "42"}, c.Revisions())
	off := New(source, false)
	off.Begin("40")
	require.Empty(t, off.Revisions())
}
