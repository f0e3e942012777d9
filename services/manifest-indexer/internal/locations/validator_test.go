package locations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// checker fails where the test sets it, and counts.
type checker struct {
	mu    sync.Mutex
	fail  map[string]error
	note  string
	calls map[string]int
	// during is called while a location is validated.
	during func(*velerov1.BackupStorageLocation)
}

func (c *checker) Validate(_ context.Context, loc *velerov1.BackupStorageLocation) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[loc.Name]++
	if c.during != nil {
		c.during(loc)
	}
	return c.note, c.fail[loc.Name]
}

type bed struct {
	t       *testing.T
	client  client.Client
	checker *checker
	clock   *clocktesting.FakeClock
	v       *Validator
	metrics *prometheus.Registry
	mu      sync.Mutex // of events: locations are validated side by side
	events  []string
}

func (b *bed) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	if l, ok := regarding.(*velerov1.BackupStorageLocation); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, fmt.Sprintf("%s %s %s: "+note, append([]any{l.Name, kind, reason}, args...)...))
	}
}

func newBed(t *testing.T, locs ...client.Object) *bed {
	b := &bed{
		t: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(locs...).Build(),
		checker: &checker{fail: map[string]error{}, calls: map[string]int{}},
		clock:   clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), metrics: prometheus.NewRegistry(),
	}
	b.v = New(Config{
		Reader: b.client, Cached: b.client, Client: b.client, Namespace: "velero", Checker: b.checker, Clock: b.clock,
		Log: slog.New(slog.DiscardHandler), Frequency: time.Minute, Default: "default", Events: b, Metrics: b.metrics,
	})
	return b
}

func newLocation(name string, age time.Duration) *velerov1.BackupStorageLocation {
	return &velerov1.BackupStorageLocation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "velero", Name: name, UID: types.UID("uid-" + name),
		CreationTimestamp: metav1.NewTime(time.Date(2025, 12, 31, 0, 0, 0, 0, time.UTC).Add(-age)),
	}}
}

func (b *bed) runPass() {
	b.t.Helper()
	require.NoError(b.t, b.v.Pass(b.t.Context()))
}

// requireMetric compares the metric, by location.
func (b *bed) requireMetric(want ...string) {
	b.t.Helper()
	families, err := b.metrics.Gather()
	require.NoError(b.t, err)
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got = append(got, fmt.Sprintf("%s %g", m.GetLabel()[0].GetValue(), m.GetGauge().GetValue()))
		}
	}
	require.Equal(b.t, want, got)
}

func (b *bed) getLocation(name string) *velerov1.BackupStorageLocation {
	b.t.Helper()
	var l velerov1.BackupStorageLocation
	require.NoError(b.t, b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, &l))
	return &l
}

func TestValidatesNewChangedAndDueLocations(t *testing.T) {
	b := newBed(t, newLocation("a", 0))
	b.runPass()
	got := b.getLocation("a")
	require.Equal(t, velerov1.LocationPhaseAvailable, got.Status.Phase)
	require.Empty(t, got.Status.Message)
	require.True(t, b.clock.Now().Equal(got.Status.LastValidationTime.Time))
	b.requireMetric("a 1")

	b.runPass()
	require.Equal(t, 1, b.checker.calls["a"], "not due")
	b.clock.Step(time.Minute)
	b.runPass()
	require.Equal(t, 2, b.checker.calls["a"], "due")

	got = b.getLocation("a")
	got.Spec.Config = map[string]string{"path": "/new"}
	require.NoError(t, b.client.Update(t.Context(), got))
	b.checker.fail["a"] = errors.New("no such bucket")
	b.runPass()
	require.Equal(t, 3, b.checker.calls["a"], "changed")
	got = b.getLocation("a")
	require.Equal(t, velerov1.LocationPhaseUnavailable, got.Status.Phase)
	require.Equal(t, `BackupStorageLocation "a" is unavailable: no such bucket`, got.Status.Message)
	b.requireMetric("a 0")

	delete(b.checker.fail, "a")
	b.checker.note = "worth knowing"
	b.clock.Step(time.Minute)
	b.runPass()
	require.Equal(t, velerov1.LocationPhaseAvailable, b.getLocation("a").Status.Phase)
	require.Equal(t, "worth knowing", b.getLocation("a").Status.Message)
}

// The result belongs to the spec that was validated.
func TestALocationThatChangesDuringItsValidationIsValidatedAgain(t *testing.T) {
	b := newBed(t, newLocation("a", 0))
	b.runPass()
	b.clock.Step(time.Minute)
	validated := b.getLocation("a").Status
	b.checker.fail["a"] = errors.New("no such bucket")
	b.checker.during = func(*velerov1.BackupStorageLocation) {
		changed := b.getLocation("a")
		changed.Spec.Config = map[string]string{"path": "/new"}
		require.NoError(t, b.client.Update(t.Context(), changed))
		b.checker.during = nil
	}
	b.runPass()
	require.Equal(t, validated, b.getLocation("a").Status)
	delete(b.checker.fail, "a")
	b.runPass()
	require.Equal(t, 3, b.checker.calls["a"])
	require.Equal(t, velerov1.LocationPhaseAvailable, b.getLocation("a").Status.Phase)
	require.True(t, b.clock.Now().Equal(b.getLocation("a").Status.LastValidationTime.Time))
}

// Each change is told once, not at every look.
func TestEventsTellWhenALocationBecomesUnavailable(t *testing.T) {
	b := newBed(t, newLocation("a", 0))
	b.runPass()
	b.checker.fail["a"] = errors.New("no such bucket")
	for range 3 {
		b.clock.Step(time.Minute)
		b.runPass()
	}
	delete(b.checker.fail, "a")
	b.clock.Step(time.Minute)
	b.runPass()
	require.Equal(t, []string{
		"a Normal Available: can be used", `a Warning Unavailable: BackupStorageLocation "a" is unavailable: no such bucket`, "a Normal Available: can be used",
	}, b.events)
}

// patient is a checker that takes until another location has failed.
type patient struct{ failed chan struct{} }

func (p *patient) Validate(ctx context.Context, loc *velerov1.BackupStorageLocation) (string, error) {
	if loc.Name == "refused" {
		return "", nil
	}
	<-p.failed
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return "", nil
	}
}

func TestALocationThatCannotBeWrittenDoesNotEndOthers(t *testing.T) {
	b := newBed(t, newLocation("refused", 0), newLocation("slow", 0))
	p := &patient{failed: make(chan struct{})}
	var once sync.Once
	b.v.Checker = p
	b.v.Client = interceptor.NewClient(b.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == "refused" {
				once.Do(func() { close(p.failed) })
				return errors.New("denied by a webhook")
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	require.ErrorContains(t, b.v.Pass(t.Context()), "denied by a webhook")
	require.Equal(t, velerov1.LocationPhaseAvailable, b.getLocation("slow").Status.Phase)
}

func TestFrequencyOfTheLocationCounts(t *testing.T) {
	once, seldom, negative := newLocation("once", 0), newLocation("seldom", 0), newLocation("negative", 0)
	once.Spec.ValidationFrequency = &metav1.Duration{}
	seldom.Spec.ValidationFrequency = &metav1.Duration{Duration: time.Hour}
	negative.Spec.ValidationFrequency = &metav1.Duration{Duration: -1}
	b := newBed(t, once, seldom, negative)
	b.runPass()
	b.clock.Step(2 * time.Minute)
	b.runPass()
	require.Equal(t, map[string]int{"once": 1, "seldom": 1, "negative": 2}, b.checker.calls)
	b.clock.Step(time.Hour)
	b.runPass()
	require.Equal(t, map[string]int{"once": 1, "seldom": 2, "negative": 3}, b.checker.calls)
}

func TestRunWakesAndStops(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.v.Run(ctx) }()
	require.Eventually(t, b.clock.HasWaiters, time.Minute, time.Millisecond)
	require.NoError(t, b.client.Create(t.Context(), newLocation("late", 0)))
	b.v.Wake()
	require.Eventually(t, func() bool { return b.getLocation("late").Status.Phase != "" }, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func TestOneBadListIsAnError(t *testing.T) {
	b := newBed(t, newLocation("a", 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, b.v.Pass(ctx))
}

// A replica that takes over shows what the objects say before anything is due, one whose duty has
// ended shows nothing, and a location that is gone leaves nothing.
func TestOneReplicaShowsTheLocations(t *testing.T) {
	b := newBed(t, newLocation("a", 0), newLocation("b", 0))
	b.checker.fail["b"] = errors.New("no such bucket")
	b.runPass()
	b.requireMetric("a 1", "b 0")
	require.NoError(t, b.client.Delete(t.Context(), b.getLocation("a")))

	config := b.v.Config
	config.Metrics = prometheus.NewRegistry()
	next := &bed{t: t, client: b.client, checker: b.checker, clock: b.clock, v: New(config), metrics: config.Metrics.(*prometheus.Registry)}
	next.runPass()
	next.requireMetric("b 0")
	require.Equal(t, 1, b.checker.calls["b"], "not due")

	ctx, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, b.v.Run(ctx))
	b.requireMetric()
}
