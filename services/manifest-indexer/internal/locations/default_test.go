package locations

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// setDefault changes spec.default as a user does.
func (b *bed) setDefault(name string, value bool) {
	b.t.Helper()
	l := b.getLocation(name)
	l.Spec.Default = value
	require.NoError(b.t, b.client.Update(b.t.Context(), l))
}

// defaults are the names of the locations with spec.default.
func (b *bed) defaults() []string {
	b.t.Helper()
	list := &velerov1.BackupStorageLocationList{}
	require.NoError(b.t, b.client.List(b.t.Context(), list))
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.Default {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// restart replaces the process, with another flag.
func (b *bed) restart(flag string) {
	b.t.Helper()
	c := b.v.Config
	c.Default, c.Metrics = flag, prometheus.NewRegistry()
	b.v = New(c)
	b.runPass()
}

func (b *bed) countEvents(text string) (n int) {
	for _, e := range b.events {
		if strings.Contains(e, text) {
			n++
		}
	}
	return n
}

func TestOfSeveralNewDefaultsTheNewestIsChosen(t *testing.T) {
	older, newer := newLocation("older", time.Hour), newLocation("newer", 0)
	older.Spec.Default, newer.Spec.Default = true, true
	b := newBed(t, older, newer)
	b.runPass()
	require.Equal(t, []string{"newer"}, b.defaults())
	require.Equal(t, 1, b.checker.calls["older"])
	require.Equal(t, 1, b.countEvents("newer Normal Default"))
	before := b.getLocation("newer").ResourceVersion
	b.runPass()
	require.Equal(t, before, b.getLocation("newer").ResourceVersion, "noted once")
}

// The older location lost the default within seconds, and after each restart.
func TestTheDefaultIsTheOneThatWasChosenLast(t *testing.T) {
	older, newer := newLocation("older", time.Hour), newLocation("default", 0)
	newer.Spec.Default = true
	b := newBed(t, older, newer)
	b.runPass()
	b.setDefault("older", true)
	b.runPass()
	require.Equal(t, []string{"older"}, b.defaults())
	b.restart("default")
	require.Equal(t, []string{"older"}, b.defaults(), "the flag is the same")
	b.clock.Step(time.Hour)
	b.setDefault("default", true)
	b.runPass()
	require.Equal(t, []string{"default"}, b.defaults())
	require.Equal(t, 1, b.countEvents(`older Normal NotDefault: is no longer the default location: "default" was made the default later`))
}

func TestTheFlagChoosesWhenItChanges(t *testing.T) {
	a := newLocation("a", time.Hour)
	a.Spec.Default = true
	b := newBed(t, a, newLocation("b", 0), newLocation("default", 0))
	b.runPass()
	require.Equal(t, []string{"a"}, b.defaults(), "nobody chose the name that the flag has by itself")
	b.restart("absent")
	require.Equal(t, []string{"a"}, b.defaults())
	b.restart("b")
	require.Equal(t, []string{"b"}, b.defaults())
	b.setDefault("a", true)
	b.runPass()
	b.restart("b")
	require.Equal(t, []string{"a"}, b.defaults(), "chosen after the flag")
	b.restart("a")
	require.Equal(t, []string{"a"}, b.defaults())
	b.restart("b")
	require.Equal(t, []string{"b"}, b.defaults(), "the flag was another one in between")
}

func TestAFlagOfTheFirstStartChooses(t *testing.T) {
	a := newLocation("a", 0)
	a.Spec.Default = true
	b := newBed(t, a, newLocation("b", time.Hour))
	b.restart("b")
	require.Equal(t, []string{"b"}, b.defaults())
}

func TestWithoutADefaultNoneIsWritten(t *testing.T) {
	b := newBed(t, newLocation("default", 0))
	b.runPass()
	require.Empty(t, b.defaults())
	b.setDefault("default", true)
	b.runPass()
	b.setDefault("default", false)
	b.runPass()
	require.Empty(t, b.defaults(), "a choice, too")
	b.restart("default")
	require.Empty(t, b.defaults())
}

// Two manifests with spec.default would take it from each other for ever.
func TestAToolThatSetsTheDefaultBackIsNotFought(t *testing.T) {
	a, other := newLocation("a", time.Hour), newLocation("b", 0)
	a.Spec.Default = true
	b := newBed(t, a, other)
	b.runPass()
	for range 20 {
		b.clock.Step(3 * time.Minute)
		b.setDefault("a", true)
		b.setDefault("b", true)
		b.runPass()
	}
	require.Len(t, b.defaults(), 2, "what the tool sets is left as it is")
	versions := b.getLocation("a").ResourceVersion + b.getLocation("b").ResourceVersion
	b.runPass()
	require.Equal(t, versions, b.getLocation("a").ResourceVersion+b.getLocation("b").ResourceVersion)
	require.Equal(t, 1, b.countEvents("spec.default is set again and again, and location "))
	require.LessOrEqual(t, b.countEvents("is no longer the default location"), 4)

	refused, accepted := "a", "b"
	if _, ok := b.getLocation("a").Annotations[holdfast.AnnotationDefault]; ok {
		refused, accepted = "b", "a"
	}
	b.setDefault(accepted, false)
	b.runPass()
	require.Equal(t, []string{refused}, b.defaults())
	require.Contains(t, b.getLocation(refused).Annotations, holdfast.AnnotationDefault, "the only one is the default")
}

// The list of locations comes from a cache that may be behind by what this process wrote itself.
func TestACacheThatIsBehindChangesNothing(t *testing.T) {
	a, other := newLocation("a", time.Hour), newLocation("b", 0)
	a.Spec.Default = true
	b := newBed(t, a, other)
	b.runPass()
	b.setDefault("b", true)
	stale := &velerov1.BackupStorageLocationList{}
	require.NoError(t, b.client.List(t.Context(), stale))
	b.runPass()
	events := len(b.events)
	require.NoError(t, b.v.ensureDefault(t.Context(), stale.DeepCopy().Items))
	require.Equal(t, []string{"b"}, b.defaults())
	b.setDefault("b", false)
	require.NoError(t, b.v.ensureDefault(t.Context(), stale.Items))
	require.Empty(t, b.defaults(), "taken off meanwhile")
	require.Len(t, b.events, events)
}

// A reset of an hour ago is over.
func TestAMarkOfWithdrawalGoesWithTime(t *testing.T) {
	a, other := newLocation("a", time.Hour), newLocation("b", 0)
	a.Spec.Default = true
	b := newBed(t, a, other)
	b.runPass()
	for _, name := range []string{"b", "a", "b", "a"} {
		b.setDefault(name, true)
		b.runPass()
	}
	require.Equal(t, []string{"a", "b"}, b.defaults(), "a was withdrawn twice within a moment")
	b.setDefault("a", false)
	b.runPass()
	require.Contains(t, b.getLocation("a").Annotations, holdfast.AnnotationWithdrawn)
	b.clock.Step(time.Hour)
	b.runPass()
	require.NotContains(t, b.getLocation("a").Annotations, holdfast.AnnotationWithdrawn)
	b.setDefault("a", true)
	b.runPass()
	require.Equal(t, []string{"a"}, b.defaults())
}
