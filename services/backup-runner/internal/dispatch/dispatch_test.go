package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/claim"
	"github.com/holdfast-io/holdfast/pkg/fabric"
	"github.com/holdfast-io/holdfast/pkg/kube"
	"github.com/holdfast-io/holdfast/pkg/offer"
	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// surroundings are everything a Dispatcher talks to.
type surroundings struct {
	mu      sync.Mutex
	hints   []string
	runs    []string
	active  map[types.UID]bool
	alive   map[string]bool
	expired chan string
	broken  error // of every run
	down    error // of the message queue
}

func (s *surroundings) Publish(_ context.Context, _ fabric.What, h *workv1.Hint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hints = append(s.hints, h.GetName())
	return s.down
}

func (s *surroundings) Name() string              { return "me" }
func (s *surroundings) Ready() bool               { return true }
func (s *surroundings) Expired() <-chan string    { return s.expired }
func (s *surroundings) Active(uid types.UID) bool { return s.active[uid] }
func (s *surroundings) ran() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.runs...)
}
func (s *surroundings) Run(_ context.Context, name string, _ types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, name)
	if name == "panics" {
		panic("a defect")
	}
	return s.broken
}

func (s *surroundings) Take(obj metav1.Object) (claim.Claim, error) {
	c, _, err := claim.Parse(obj)
	if s.alive[c.Holder] {
		return c, &claim.HeldError{Holder: c.Holder}
	}
	return c, err
}

func backup(name, holder string, phase velerov1.BackupPhase) *velerov1.Backup {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, UID: types.UID(name)}}
	b.Status.Phase = phase
	if holder != "" {
		_ = claim.Set(b, claim.Claim{Holder: holder, Epoch: 1})
	}
	return b
}

func newDispatcher(t *testing.T, backups ...*velerov1.Backup) (*Dispatcher, *surroundings) {
	t.Helper()
	s := &surroundings{active: map[types.UID]bool{}, alive: map[string]bool{}, expired: make(chan string, 1)}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme())
	for _, b := range backups {
		c.WithObjects(b)
	}
	return &Dispatcher{Reader: c.Build(), Namespace: "velero", Publisher: s, Instance: s, Runs: s,
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)}, s
}

func TestReconcilePublishesWhatNobodyWorksOn(t *testing.T) {
	tests := map[string]struct {
		backup *velerov1.Backup
		hint   bool
		again  bool
	}{
		"ready":                    {backup("b", "", velerov1.BackupPhaseReadyToStart), true, true},
		"handed over or abandoned": {backup("b", "dead", velerov1.BackupPhaseInProgress), true, true},
		"held by a live instance":  {backup("b", "alive", velerov1.BackupPhaseInProgress), false, true},
		"run here":                 {backup("active", "me", velerov1.BackupPhaseInProgress), false, true},
		"claimed and not run":      {backup("b", "me", velerov1.BackupPhaseInProgress), true, true},
		"queued":                   {backup("b", "", velerov1.BackupPhaseQueued), false, false},
		"completed":                {backup("b", "dead", velerov1.BackupPhaseCompleted), false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d, s := newDispatcher(t, tt.backup)
			s.alive["alive"], s.active["active"] = true, true
			got, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "velero", Name: tt.backup.Name}})
			require.NoError(t, err)
			require.Equal(t, tt.again, got.RequeueAfter == offer.Period)
			require.Equal(t, tt.hint, len(s.hints) == 1)
		})
	}
	d, _ := newDispatcher(t)
	_, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "velero", Name: "gone"}})
	require.NoError(t, err)
}

func TestTakeoversRunWhatADeadHolderHeld(t *testing.T) {
	d, s := newDispatcher(t, backup("mine", "dead", velerov1.BackupPhaseInProgress), backup("panics", "dead", velerov1.BackupPhaseFinalizing),
		backup("done", "dead", velerov1.BackupPhaseCompleted), backup("other", "alive", velerov1.BackupPhaseInProgress))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Takeovers(ctx) }()
	s.expired <- "dead"
	require.Eventually(t, func() bool { return len(s.ran()) == 2 }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.ElementsMatch(t, []string{"mine", "panics"}, s.ran())
}

// No message queue, or one that swallows hints: ready and handed-over backups run
// all the same.
func TestBackupsRunWithoutMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		backup *velerov1.Backup
		down   error
		looks  int // a period apart
		runs   bool
	}{
		"announced":              {backup("b", "", velerov1.BackupPhaseReadyToStart), nil, 2, false},
		"announced in vain":      {backup("b", "", velerov1.BackupPhaseReadyToStart), nil, 3, true},
		"no queue":               {backup("b", "", velerov1.BackupPhaseReadyToStart), errors.New("down"), 1, true},
		"handed over":            {backup("b", "dead", velerov1.BackupPhaseInProgress), nil, 1, true},
		"held, and no queue":     {backup("b", "alive", velerov1.BackupPhaseInProgress), errors.New("down"), 4, false},
		"not ready, a long time": {backup("b", "", velerov1.BackupPhaseQueued), errors.New("down"), 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, s := newDispatcher(t, tt.backup)
			now := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
			d.Clock, s.down, s.alive["alive"] = now, tt.down, true
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- d.Takeovers(ctx) }()
			for range tt.looks {
				_, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tt.backup)})
				require.NoError(t, err)
				now.Step(offer.Period)
			}
			if tt.runs {
				require.Eventually(t, func() bool { return len(s.ran()) > 0 }, 10*time.Second, time.Millisecond)
			}
			cancel()
			require.NoError(t, <-done)
			require.Equal(t, tt.runs, len(s.ran()) > 0)
		})
	}
}
