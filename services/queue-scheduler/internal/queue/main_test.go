package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/ledger"
	"github.com/holdfast-io/holdfast/pkg/job/validate"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	eventv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/event/v1"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
	"github.com/holdfast-io/holdfast/services/queue-scheduler/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rules is a validator whose answers the tests choose.
type rules struct {
	mu       sync.Mutex
	refused  map[string]string // object name to problem
	down     error
	more     []string          // namespaces beside the usual ones
	labelled []string          // namespaces with the exclude label
	away     map[string]string // location to what is wrong with it
}

func (r *rules) Forget() {}

func (r *rules) judgeBackup(name string) (validate.Problems, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return nil, r.down
	}
	if text, bad := r.refused[name]; bad {
		return validate.Problems{{Field: "spec", Message: text}}, nil
	}
	return nil, nil
}

func (r *rules) Backup(_ context.Context, b *velerov1.Backup) (validate.Problems, error) {
	problems, err := r.judgeBackup(b.Name)
	if message, _ := r.Away(context.Background(), b); message != "" && err == nil {
		problems = append(problems, validate.Problem{Field: "spec.storageLocation", Message: message, Passing: true})
	}
	if b.Spec.StorageLocation == "" {
		b.Spec.StorageLocation = "computed"
	}
	b.Status.Expiration = &metav1.Time{Time: start.AddDate(0, 1, 0)}
	return problems, err
}

// ApplyPlan knows the plan of namespace ns1.
func (r *rules) ApplyPlan(_ context.Context, b *velerov1.Backup) (validate.Problems, error) {
	switch b.Annotations[holdfast.AnnotationPlan] {
	case "":
	case "of-ns1":
		b.Spec.IncludedNamespaces = []string{"ns1"}
	default:
		return validate.Problems{{Message: "no such plan"}}, nil
	}
	return nil, nil
}

func (r *rules) Away(_ context.Context, b *velerov1.Backup) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away[b.Spec.StorageLocation], nil
}

// setAway makes a location unavailable, or available again.
func (r *rules) setAway(location, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away == nil {
		r.away = map[string]string{}
	}
	r.away[location] = message
}

func (r *rules) Restore(_ context.Context, o *velerov1.Restore) (validate.Problems, error) {
	if o.Spec.BackupName != "" && o.Spec.ScheduleName != "" {
		return validate.Problems{{Message: "exactly one of them must be set"}}, nil
	}
	o.Spec.ScheduleName = "computed"
	return r.judgeBackup(o.Name)
}

func (r *rules) Source(_ context.Context, o *velerov1.Restore) (validate.Problems, error) {
	return r.judgeBackup(o.Spec.BackupName)
}

// Targets takes the namespaces of the backup from its name: "of-a,b".
func (r *rules) Targets(_ context.Context, o *velerov1.Restore) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, told := strings.CutPrefix(o.Spec.BackupName, "of-")
	switch {
	case len(o.Spec.IncludedNamespaces) > 0 || !told:
		return validate.Targets(&o.Spec), nil
	case held == "":
		return nil, errDown
	}
	return strings.Split(held, ","), nil
}

func (r *rules) Namespaces(context.Context) (live, excluded []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{"ns1", "ns2", "ns3", "team-a", "team-b"}, r.more...), r.labelled, nil
}

func (r *rules) addNamespaces(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.more = append(r.more, names...)
}

// wire notes what was published.
type wire struct {
	mu    sync.Mutex
	hints []string
	down  error
}

func (w *wire) Publish(_ context.Context, what messaging.What, hint *workv1.Hint) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hints = append(w.hints, string(what)+" "+hint.GetName())
	return w.down
}

func (w *wire) PublishEvent(context.Context, *eventv1.Event) error { return nil }

func (w *wire) hasSent(hint string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.hints, hint)
}

// counter counts nothing, and records no Event.
type counter struct{}

func (counter) Ended(client.Object) {}

func (counter) QueueWalked(time.Duration) {}

func (counter) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// voice notes the Events that were made.
type voice struct {
	mu    sync.Mutex
	heard []string
}

func (v *voice) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	name := ""
	if o, ok := regarding.(client.Object); ok {
		name = o.GetName()
	}
	v.heard = append(v.heard, name+" "+reason+": "+fmt.Sprintf(note, args...))
}

func (v *voice) allEvents() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.heard)
}

// newQueue returns a scheduler over a client. The test makes its passes, or runs it.
func newQueue(c client.Client, limits *ledger.Limits, changes ...func(*queue.Config)) *queue.Scheduler {
	config := queue.Config{
		Reader: c, Client: c, Namespace: "velero", Ledger: ledger.New(c, c, "velero"), Publisher: &wire{}, Validator: &rules{},
		Limits:  func(context.Context) (ledger.Limits, error) { return *limits, nil },
		Metrics: counter{}, Events: counter{}, Tracer: noop.NewTracerProvider(), Clock: clocktesting.NewFakeClock(start), Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	return queue.New(config)
}

// bed is a fake API server with a queue. Its clock stands still unless the test moves it.
type bed struct {
	t      *testing.T
	c      client.WithWatch
	ledger *ledger.Ledger
	rules  *rules
	wire   *wire
	voice  *voice
	clock  *clocktesting.FakeClock
	limits ledger.Limits
	stop   func()
}

func newBed(t *testing.T, limits ledger.Limits, funcs interceptor.Funcs) *bed {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithInterceptorFuncs(funcs).Build()
	return &bed{
		t: t, c: c, ledger: ledger.New(c, c, "velero"), rules: &rules{refused: map[string]string{}}, wire: &wire{}, voice: &voice{},
		clock: clocktesting.NewFakeClock(start), limits: limits,
	}
}

// newScheduler returns a scheduler of the bed, with which jobs wait for an hour for their location and
// for a higher class.
func (b *bed) newScheduler(changes ...func(*queue.Config)) *queue.Scheduler {
	return newQueue(b.c, &b.limits, append([]func(*queue.Config){func(c *queue.Config) {
		c.Ledger, c.Publisher, c.Validator, c.Events, c.Clock = b.ledger, b.wire, b.rules, b.voice, b.clock
		c.Ageing, c.LocationTimeout = time.Hour, time.Hour
	}}, changes...)...)
}

func withRealClock(c *queue.Config) { c.Clock = clock.RealClock{} }

func withLedger(book queue.Ledger) func(*queue.Config) {
	return func(c *queue.Config) { c.Ledger = book }
}

func withValidator(v queue.Validator) func(*queue.Config) {
	return func(c *queue.Config) { c.Validator = v }
}

// runScheduler starts a scheduler; every check of the test wakes it.
func (b *bed) runScheduler(changes ...func(*queue.Config)) *queue.Scheduler {
	s := b.newScheduler(append(changes, withRealClock)...)
	ctx, cancel := context.WithCancel(b.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	group.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				s.Wake()
			}
		}
	})
	b.stop = func() { cancel(); group.Wait() }
	b.t.Cleanup(b.stop)
	return s
}

var start = time.Date(2026, 5, 6, 7, 0, 0, 0, time.UTC)

func objectMeta(name string, order int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "velero", Name: name, UID: types.UID("uid-" + name),
		CreationTimestamp: metav1.NewTime(start.Add(time.Duration(order) * time.Second)),
	}
}

func (b *bed) createBackup(name string, order int, namespaces ...string) {
	b.t.Helper()
	require.NoError(b.t, b.c.Create(b.t.Context(), &velerov1.Backup{
		ObjectMeta: objectMeta(name, order), Spec: velerov1.BackupSpec{IncludedNamespaces: namespaces},
	}))
}

func (b *bed) createRestore(name string, order int, namespaces ...string) {
	b.t.Helper()
	require.NoError(b.t, b.c.Create(b.t.Context(), &velerov1.Restore{
		ObjectMeta: objectMeta(name, order), Spec: velerov1.RestoreSpec{BackupName: "x", IncludedNamespaces: namespaces},
	}))
}

func (b *bed) getBackup(name string) *velerov1.Backup {
	o := &velerov1.Backup{}
	require.NoError(b.t, b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, o))
	return o
}

func (b *bed) getRestore(name string) *velerov1.Restore {
	o := &velerov1.Restore{}
	require.NoError(b.t, b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, o))
	return o
}

func (b *bed) setPhase(name string, phase velerov1.BackupPhase) {
	b.t.Helper()
	o := b.getBackup(name)
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, o, func(o *velerov1.Backup) error { o.Status.Phase = phase; return nil }))
}

func (b *bed) setRestore(name string, phase velerov1.RestorePhase) {
	b.t.Helper()
	o := b.getRestore(name)
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, o, func(o *velerov1.Restore) error { o.Status.Phase = phase; return nil }))
}

func (b *bed) requireEventually(msg string, condition func() bool) {
	b.t.Helper()
	require.Eventually(b.t, condition, time.Minute, 10*time.Millisecond, msg)
}

func (b *bed) requirePhase(phase velerov1.BackupPhase, names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.requireEventually(name+" reaches "+string(phase), func() bool { return b.getBackup(name).Status.Phase == phase })
	}
}

func (b *bed) admittedNames() []string {
	entries, err := b.ledger.List(b.t.Context())
	require.NoError(b.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

var errDown = errors.New("injected")
