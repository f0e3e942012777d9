package operations

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// controller does the work of all operations, except of those that are held. Safe for concurrent
// use.
type controller struct {
	works client.Client
	mu    sync.Mutex
	held  map[string]bool
	ended map[string]time.Time // when the last operation of a namespace did
}

// startController lets a controller run until the test is done.
func startController(t *testing.T, c client.Client) *controller {
	t.Helper()
	controller := &controller{works: c, held: map[string]bool{}, ended: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { controller.runController(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return controller
}

// holdOperations keeps operations from running, in a namespace or for one item of it ("namespace/name").
func (c *controller) holdOperations(of ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range of {
		c.held[name] = true
	}
}

// releaseHeld lets operations run, and returns when.
func (c *controller) releaseHeld(of ...string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range of {
		delete(c.held, name)
	}
	return time.Now()
}

func (c *controller) isHeld(w *workObject) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[w.Namespace] || c.held[w.Namespace+"/"+w.Spec.Item]
}

// noteEnd keeps when an operation ended.
func (c *controller) noteEnd(w *workObject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[w.Namespace] = time.Now()
}

// endOf is when the last operation of a namespace ended.
func (c *controller) endOf(namespace string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[namespace]
}

// runController reconciles all objects in a loop: a failed read or write is repeated by the next pass.
func (c *controller) runController(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		var list workList
		if err := c.works.List(ctx, &list); err == nil {
			for i := range list.Items {
				if w := &list.Items[i]; c.advanceWork(w) && c.works.Update(ctx, w) == nil && w.Spec.Result != "" {
					c.noteEnd(w)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// advanceWork changes a work, or reports that there is nothing to change.
func (c *controller) advanceWork(w *workObject) bool {
	switch {
	case w.Spec.Result != "":
		return false
	case w.Spec.Cancelled:
		w.Spec.Result = cancelled
	case c.isHeld(w):
		return false
	case w.Status.Started == nil:
		w.Status = workStatus{Phase: "Running", Started: new(metav1.NowMicro()), Steps: 1}
		return true
	case time.Since(w.startedAt()).Seconds() < w.Spec.Order.Seconds:
		return false
	case w.Spec.Order.Fails != "":
		w.Spec.Result = failed
	default:
		w.Spec.Result, w.Status.Steps = done, total
	}
	w.Status.Phase = "Ended"
	return true
}

// worksOf returns the operations of a backup, ordered by their items.
func (b *bed) worksOf(t *testing.T, backup string) []workObject {
	t.Helper()
	var list workList
	require.NoError(t, b.works.List(t.Context(), &list))
	found := slices.DeleteFunc(list.Items, func(w workObject) bool { return w.Spec.Backup != backup })
	slices.SortFunc(found, func(a, b workObject) int {
		return slices.Compare([]string{a.Spec.Item, a.Name}, []string{b.Spec.Item, b.Name})
	})
	return found
}
