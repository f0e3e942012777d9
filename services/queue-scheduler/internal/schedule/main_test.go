package schedule

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

var start = time.Date(2026, 5, 6, 7, 0, 30, 0, time.UTC)

// told keeps recorded events.
type told struct {
	mu     sync.Mutex
	events []string
	made   int
}

func (o *told) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, reason+" "+fmt.Sprintf(note, args...))
}

func (o *told) BackupMade(string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.made++
}

func (o *told) countReason(reason string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, e := range o.events {
		if strings.HasPrefix(e, reason+" ") {
			n++
		}
	}
	return n
}

// bed is a fake API server and its clock. Backups are made by schedulers that the test lets pass,
// one call at a time.
type bed struct {
	t     *testing.T
	c     client.WithWatch
	clock *clocktesting.FakeClock
	told  *told
	log   bytes.Buffer // of logger, which all replicas share: its handler lets one of them write at a time

	logger *slog.Logger
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{
		t: t, c: fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), clock: clocktesting.NewFakeClock(start), told: &told{},
	}
	b.logger = slog.New(slog.NewTextHandler(&b.log, nil))
	return b
}

// newScheduler is one replica; funcs break its own connection only.
func (b *bed) newScheduler(funcs interceptor.Funcs) *Scheduler {
	c := interceptor.NewClient(b.c, funcs)
	return New(Config{
		Reader: c, Jobs: c, Client: c, Namespace: "velero", Events: b.told, CountBackup: b.told.BackupMade, Clock: b.clock,
		Log: b.logger,
	})
}

func (b *bed) createSchedule(name, expression string, change func(*velerov1.Schedule)) {
	b.t.Helper()
	s := &velerov1.Schedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(b.clock.Now())},
		Spec:       velerov1.ScheduleSpec{Schedule: expression},
	}
	if change != nil {
		change(s)
	}
	require.NoError(b.t, b.c.Create(b.t.Context(), s))
}

func (b *bed) getSchedule(name string) *velerov1.Schedule {
	b.t.Helper()
	s := &velerov1.Schedule{}
	require.NoError(b.t, b.c.Get(b.t.Context(), client.ObjectKey{Namespace: "velero", Name: name}, s))
	return s
}

func (b *bed) changeSchedule(name string, mutate func(*velerov1.Schedule)) {
	b.t.Helper()
	require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, b.getSchedule(name), func(s *velerov1.Schedule) error { mutate(s); return nil }))
}

// runPass makes one pass, which must succeed, after time went by.
func (b *bed) runPass(s *Scheduler, after time.Duration) time.Time {
	b.t.Helper()
	b.clock.Step(after)
	next, err := s.runPass(b.t.Context())
	require.NoError(b.t, err)
	return next
}

// backupNames are the names of all Backups, oldest slot first.
func (b *bed) backupNames() []string {
	b.t.Helper()
	list := &velerov1.BackupList{}
	require.NoError(b.t, b.c.List(b.t.Context(), list))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// finishBackups gives every Backup a phase.
func (b *bed) finishBackups(phase velerov1.BackupPhase) {
	b.t.Helper()
	for _, name := range b.backupNames() {
		o := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name}}
		require.NoError(b.t, kube.Update(b.t.Context(), b.c, b.c, o, func(o *velerov1.Backup) error { o.Status.Phase = phase; return nil }))
	}
}

func allowConcurrent(s *velerov1.Schedule) {
	s.Annotations = map[string]string{"holdfast.io/concurrency-policy": "Allow"}
}

// gate holds one call of a replica up, as a paused process would.
type gate struct{ reached, open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gate) awaitGate(ctx context.Context) error {
	close(g.reached)
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
