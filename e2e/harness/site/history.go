package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/claim"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// Step is a state of a job that differs from the one before in its phase, claim or place.
type Step struct {
	At time.Time // when it was observed
	// Revision is that at which the API server stored it: revisions are one order for everything
	// that happens in the cluster.
	Revision int64
	Phase    string
	Position int    // of a backup in the queue
	Holder   string // of the claim
	Epoch    int64  // of the claim; 0 before the first
}

// isSameAs reports that two steps differ in nothing but when they were observed and stored.
func (s Step) isSameAs(o Step) bool {
	o.At, o.Revision = s.At, s.Revision
	return s == o
}

// History keeps the steps of all backups and restores from their creation on. Safe for concurrent
// use.
type History struct {
	mu    sync.Mutex
	steps map[string][]Step
	err   error // of a revision that is no number
}

// watchJobs follows the jobs of a cluster until the test is done. An outage of the API server hides the
// steps between.
func watchJobs(t *testing.T, config *rest.Config) *History {
	t.Helper()
	h := &History{steps: map[string][]Step{}}
	informers, err := cache.New(config, cache.Options{Scheme: kube.Scheme(), DefaultNamespaces: map[string]cache.Config{Server: {}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- informers.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.NoError(t, h.err)
	})
	for _, kind := range []client.Object{&velerov1.Backup{}, &velerov1.Restore{}} {
		informer, err := informers.GetInformer(t.Context(), kind)
		require.NoError(t, err)
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: h.noteStep, UpdateFunc: func(_, o any) { h.noteStep(o) }})
		require.NoError(t, err)
	}
	return h
}

func (h *History) noteStep(object any) {
	step := Step{At: time.Now()}
	var key string
	switch o := object.(type) {
	case *velerov1.Backup:
		key, step.Phase, step.Position = "Backup "+o.Name, string(o.Status.Phase), o.Status.QueuePosition
	case *velerov1.Restore:
		key, step.Phase = "Restore "+o.Name, string(o.Status.Phase)
	default:
		return
	}
	obj := object.(client.Object)
	if held, ok, err := claim.Parse(obj); ok && err == nil {
		step.Holder, step.Epoch = held.Owner, held.Epoch
	}
	var err error
	step.Revision, err = strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = errors.Join(h.err, err)
	steps := h.steps[key]
	if n := len(steps); n > 0 && steps[n-1].isSameAs(step) {
		return
	}
	h.steps[key] = append(steps, step)
}

// Of returns the steps of one job; kind is Backup or Restore.
func (h *History) Of(kind, name string) []Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.steps[kind+" "+name])
}

// At returns the first step of a job in one of the phases.
func (h *History) At(kind, name string, phases ...string) (Step, bool) {
	for _, s := range h.Of(kind, name) {
		if slices.Contains(phases, s.Phase) {
			return s, true
		}
	}
	return Step{}, false
}

// Reaches waits for a job's first step in one of the phases and returns it.
func (h *History) Reaches(t *testing.T, kind, name string, phases ...string) Step {
	t.Helper()
	var found Step
	require.Eventually(t, func() bool {
		var ok bool
		found, ok = h.At(kind, name, phases...)
		return ok
	}, Patience, Look, "%s %s reaches %v", kind, name, phases)
	return found
}

// RanOnce requires that one holder took the job, at epoch 1, and that it completed once.
func (h *History) RanOnce(t *testing.T, kind, name string) {
	t.Helper()
	steps := h.awaitEnded(t, kind, name)
	holders, ends, epoch := map[string]bool{}, 0, int64(0)
	for i, step := range steps {
		epoch = max(epoch, step.Epoch)
		if step.Holder != "" {
			holders[step.Holder] = true
		}
		if step.Phase == "Completed" && (i == 0 || steps[i-1].Phase != "Completed") {
			ends++
		}
	}
	require.Equal(t, int64(1), epoch, "%s %s was taken once:\n%s", kind, name, stepTexts(steps))
	require.LessOrEqual(t, len(holders), 1, "%s %s:\n%s", kind, name, stepTexts(steps))
	require.Equal(t, 1, ends, "%s %s:\n%s", kind, name, stepTexts(steps))
}

// awaitEnded waits until the history has the job's end, which may come after the test's own read of it.
func (h *History) awaitEnded(t *testing.T, kind, name string) []Step {
	t.Helper()
	var steps []Step
	require.Eventually(t, func() bool {
		steps = h.Of(kind, name)
		return len(steps) > 0 && slices.Contains([]string{"Completed", "PartiallyFailed", "Failed"}, steps[len(steps)-1].Phase)
	}, Patience, Look, "%s %s is seen ending", kind, name)
	return steps
}

// HandOver is a change of a job's holder.
type HandOver struct {
	Pause time.Duration // from the moment the old holder let go, or from the last sign of it, to the moment the new one took it
	Free  bool          // the old holder let go; otherwise it was found dead
	Steps string        // of the job, to be read by people
}

// HandOvers returns the changes of holder in a job that has ended.
func (h *History) HandOvers(t *testing.T, kind, name string) []HandOver {
	t.Helper()
	var found []HandOver
	var holder string
	var since time.Time
	free := false
	steps := h.awaitEnded(t, kind, name)
	for i, step := range steps {
		if i > 0 {
			step.Position = steps[i-1].Position // another place in the queue is no sign of the holder
		}
		switch {
		case step.Epoch == 0 || free && step.Holder == "", i > 0 && step.isSameAs(steps[i-1]):
			continue
		case step.Holder == "":
			free = true
		case holder != "" && (free || step.Holder != holder):
			found = append(found, HandOver{Pause: step.At.Sub(since), Free: free, Steps: kind + " " + name + ":\n" + stepTexts(steps)})
			fallthrough
		default:
			holder, free = step.Holder, false
		}
		since = step.At
	}
	return found
}

func stepTexts(steps []Step) string {
	var lines strings.Builder
	for _, s := range steps {
		_, _ = fmt.Fprintf(&lines, "%s %s %q %d\n", s.At.Format("15:04:05.000"), s.Phase, s.Holder, s.Epoch)
	}
	return lines.String()
}

// awaitCondition checks a condition for as long as Patience lasts and reports whether it came true.
func awaitCondition(t *testing.T, condition func() bool) bool {
	t.Helper()
	ticker := time.NewTicker(Look)
	defer ticker.Stop()
	for limit := time.Now().Add(Patience); time.Now().Before(limit); <-ticker.C {
		if condition() {
			return true
		}
	}
	return false
}
