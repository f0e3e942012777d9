package cut

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

var (
	pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// storages is a cluster at a revision, with kinds in storages of their own.
type storages struct {
	revision, step int
	own            map[schema.GroupVersionResource]string
	reads          int // of the cluster
	probes         int // of kinds
	err            error
}

func (s *storages) Revision(context.Context) (string, error) {
	s.reads++
	s.revision += s.step
	return strconv.Itoa(s.revision), s.err
}

func (s *storages) RevisionOf(_ context.Context, kind schema.GroupVersionResource, _ string) (string, error) {
	s.probes++
	s.revision += s.step
	if own, ok := s.own[kind]; ok {
		return own, s.err
	}
	return strconv.Itoa(s.revision), s.err
}

func sharesRevisions(t *testing.T, k *Kinds, kind schema.GroupVersionResource, since string) bool {
	t.Helper()
	ok, err := k.Shares(t.Context(), kind, "", since)
	require.NoError(t, err)
	return ok
}

func TestKindsAreBracketed(t *testing.T) {
	for own, want := range map[string]bool{"": true, "99": false, "100": true, "101": false, "7000": false, "opaque": true} {
		for _, step := range []int{0, 3} {
			s := &storages{revision: 100, step: step}
			if own != "" {
				s.own = map[schema.GroupVersionResource]string{pods: own}
			}
			if own == "101" && step > 0 {
				want = true // a revision that the cluster has come to
			}
			k := NewKinds(s, clocktesting.NewFakeClock(time.Unix(0, 0)))
			require.Equal(t, want, sharesRevisions(t, k, pods, "100"), "%s, step %d", own, step)
		}
	}
}

// A cluster that is not written to costs one read for each kind, and backups that follow one
// another share the answers for a minute.
func TestKindsAreReadOnce(t *testing.T) {
	s := &storages{revision: 100, own: map[schema.GroupVersionResource]string{leases: "5"}}
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	k := NewKinds(s, clk)
	for range 3 {
		require.True(t, sharesRevisions(t, k, pods, "100"))
		require.False(t, sharesRevisions(t, k, leases, "100"))
	}
	require.Equal(t, 2, s.probes)
	require.Zero(t, s.reads)
	clk.Step(kindsLifetime)
	s.own = map[schema.GroupVersionResource]string{pods: "7"}
	require.False(t, sharesRevisions(t, k, pods, "100"), "a kind that was moved")
	require.True(t, sharesRevisions(t, k, leases, "100"))
}

func TestErrorsOfKindsAreNotRemembered(t *testing.T) {
	s := &storages{revision: 100, err: errors.New("away")}
	k := NewKinds(s, clocktesting.NewFakeClock(time.Unix(0, 0)))
	_, err := k.Shares(t.Context(), pods, "", "100")
	require.ErrorIs(t, err, s.err)
	s.err = nil
	require.True(t, sharesRevisions(t, k, pods, "100"))
}

// Who waits for the answer of another can be cancelled.
func TestWaitingForAKindEndsWithItsContext(t *testing.T) {
	k := NewKinds(&storages{}, clocktesting.NewFakeClock(time.Unix(0, 0)))
	k.kindOf(pods).turn <- struct{}{}
	reason := errors.New("claim lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	_, err := k.Shares(ctx, pods, "", "1")
	require.ErrorIs(t, err, reason)
}

func TestACutHoldsForKindsThatShareIt(t *testing.T) {
	s := &storages{revision: 100, own: map[schema.GroupVersionResource]string{leases: "5"}}
	source := struct {
		*storages
		*Kinds
	}{s, NewKinds(s, clocktesting.NewFakeClock(time.Unix(0, 0)))}
	c := New(source, true)
	for kind, want := range map[schema.GroupVersionResource]string{pods: "100", leases: ""} {
		revision, apart, err := c.For(t.Context(), kind, "")
		require.NoError(t, err)
		require.Equal(t, want, revision)
		require.Equal(t, want == "", apart)
	}
	require.Equal(t, []string{"100"}, c.Revisions())
	s.revision = 200
	since, err := c.Newest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "100", since, "the common revision was the newest, and none is read")
	other := New(source, true)
	since, err = other.Newest(t.Context())
	require.NoError(t, err)
	require.Equal(t, "200", since)
	require.NoError(t, other.Compare(t.Context(), pods, since))
	require.Empty(t, other.Revisions(), "no cut is taken by comparing")
	off := New(source, false)
	since, err = off.Newest(t.Context())
	require.NoError(t, err)
	require.Empty(t, since)
	revision, apart, err := off.For(t.Context(), leases, "")
	require.NoError(t, err)
	require.Empty(t, revision)
	require.False(t, apart, "without a common revision none is apart")
}
