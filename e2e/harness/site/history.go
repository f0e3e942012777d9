package site

import (
	"context"
	"fmt"
	"slices"
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

// Step is a state of a job that differs from the one before in something that matters.
type Step struct {
	At     time.Time // when it was seen
	Phase  string
	Holder string // of the claim
	Epoch  int64  // of the claim; 0 before the first
}

// History keeps the steps of all backups and restores from their creation on. Safe for concurrent
// use.
type History struct {
	mu    sync.Mutex
	steps map[string][]Step
}

// watch follows the jobs of a cluster until the test is done. An outage of the API server hides the
// steps between.
func watch(t *testing.T, config *rest.Config) *History {
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
	})
	for _, kind := range []client.Object{&velerov1.Backup{}, &velerov1.Restore{}} {
		informer, err := informers.GetInformer(t.Context(), kind)
		require.NoError(t, err)
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: h.note, UpdateFunc: func(_, o any) { h.note(o) }})
		require.NoError(t, err)
	}
	return h
}

func (h *History) note(object any) {
	step := Step{At: time.Now()}
	var key string
	switch o := object.(type) {
	case *velerov1.Backup:
		key, step.Phase = "Backup "+o.Name, string(o.Status.Phase)
	case *velerov1.Restore:
		key, step.Phase = "Restore "+o.Name, string(o.Status.Phase)
	default:
		return
	}
	if held, ok, err := claim.Parse(object.(client.Object)); ok && err == nil {
		step.Holder, step.Epoch = held.Holder, held.Epoch
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	steps := h.steps[key]
	if n := len(steps); n > 0 {
		last := steps[n-1]
		if last.At = step.At; last == step {
			return
		}
	}
	h.steps[key] = append(steps, step)
}

// Of returns the steps of one job; kind is Backup or Restore.
func (h *History) Of(kind, name string) []Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.steps[kind+" "+name])
}

// RanOnce wants a job that one holder took, at epoch 1, and that completed once.
func (h *History) RanOnce(t *testing.T, kind, name string) {
	t.Helper()
	steps := h.ended(t, kind, name)
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
	require.Equal(t, int64(1), epoch, "%s %s was taken once:\n%s", kind, name, text(steps))
	require.LessOrEqual(t, len(holders), 1, "%s %s:\n%s", kind, name, text(steps))
	require.Equal(t, 1, ends, "%s %s:\n%s", kind, name, text(steps))
}

// ended waits until the history has seen the job's end: it comes a moment after the test's own
// look.
func (h *History) ended(t *testing.T, kind, name string) []Step {
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
	steps := h.ended(t, kind, name)
	for _, step := range steps {
		switch {
		case step.Epoch == 0 || free && step.Holder == "":
			continue
		case step.Holder == "":
			free = true
		case holder != "" && (free || step.Holder != holder):
			found = append(found, HandOver{Pause: step.At.Sub(since), Free: free, Steps: kind + " " + name + ":\n" + text(steps)})
			fallthrough
		default:
			holder, free = step.Holder, false
		}
		since = step.At
	}
	return found
}

func text(steps []Step) string {
	var lines strings.Builder
	for _, s := range steps {
		_, _ = fmt.Fprintf(&lines, "%s %s %q %d\n", s.At.Format("15:04:05.000"), s.Phase, s.Holder, s.Epoch)
	}
	return lines.String()
}

// wait looks at a condition for as long as Patience lasts and reports whether it came true.
func wait(t *testing.T, condition func() bool) bool {
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
