package poll_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// homes are processes that operations live in, each with plugins of its own.
type homes struct {
	mu      sync.Mutex
	plugins map[string]*plugins // by "instance/process"
	forgot  []string
	// slow is how long a call to forget takes; now and most are how many are under way, and were.
	slow      time.Duration
	now, most int
}

// At implements operation.Homes.
func (h *homes) At(instance, process string) action.Operations {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.plugins[instance+"/"+process]
}

// Forget implements operation.Homes.
func (h *homes) Forget(_ context.Context, instance, process string, op action.Operation) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgot = append(h.forgot, instance+"/"+process+" "+op.ID)
	h.now++
	h.most = max(h.most, h.now)
	h.mu.Unlock()
	time.Sleep(h.slow)
	h.mu.Lock()
	h.now--
	return nil
}

// inHomes is a job with one operation in each of these processes, "instance/process", named as its
// process.
func inHomes(t *testing.T, do func(b *bed, h *homes, p *process), processes ...string) {
	t.Helper()
	inBubble(t, nil, func(b *bed) {
		for _, key := range b.store.Keys() {
			require.NoError(b, b.store.Delete(b.Context(), key))
		}
		h := &homes{plugins: map[string]*plugins{}}
		list := operation.List{Job: theJob, Epoch: 1}
		for _, name := range processes {
			var home operation.Home
			_, err := fmt.Sscanf(name, "%1s/%1s", &home.Instance, &home.Process)
			require.NoError(b, err)
			list.Operations = append(list.Operations, operation.Operation{Action: "vendor.io/a", ID: name, Created: time.Now(), Home: &home})
			h.plugins[name] = newPlugins()
		}
		b.sealOperations(list)
		do(b, h, b.startProcess(func(c *poll.Config) { c.Actions.Homes = h }))
	})
}

func TestAnOperationInAProcessIsAskedAboutThere(t *testing.T) {
	inHomes(t, func(b *bed, h *homes, p *process) {
		require.False(b, p.pollFor(time.Minute))
		h.plugins["i/p"].setBehaviour("i/p", endingWith(""))
		require.True(b, p.pollFor(time.Minute))
		require.Equal(b, operation.Completed, b.recordedStates()[0].Phase)
		require.Empty(b, b.plugins.askedAt("i/p"), "no other process is")
	}, "i/p")
}

// The end of the process is certain, and no failed call: the operation has failed with the next poll.
func TestAnOperationFailsWithItsProcess(t *testing.T) {
	inHomes(t, func(b *bed, h *homes, p *process) {
		gone := fmt.Errorf("%w: instance i has ended", operationhome.ErrGone)
		h.plugins["i/p"].setBehaviour("i/p", failingWith(errBroken))
		require.False(b, p.pollFor(30*time.Minute), "a call that fails says nothing")
		asked := len(h.plugins["i/p"].askedAt("i/p"))
		require.Greater(b, asked, 150, "nor does it make the polls rare: the end of the process is seen soon")
		h.plugins["i/p"].setBehaviour("i/p", failingWith(gone))
		began := time.Now()
		require.False(b, p.pollFor(time.Minute))
		require.Equal(b, "the operation is lost: the process that the operation lived in is gone: instance i has ended", b.errorOf(0))
		require.Len(b, h.plugins["i/p"].askedAt("i/p"), asked+1)
		require.LessOrEqual(b, time.Since(began), 2*time.Minute)
		require.False(b, b.recordedStates()[1].Phase.Ended(), "the other process lives")
	}, "i/p", "i/q")
}

// An instance that does not answer holds up its own operations only.
func TestAnInstanceThatHangsHoldsUpNoOther(t *testing.T) {
	var names []string
	for i := range 16 {
		names = append(names, "i/"+string(rune('a'+i)))
	}
	names = append(names, "j/p") // asked about last, were they all in one queue
	inHomes(t, func(b *bed, h *homes, p *process) {
		for _, name := range names[:16] {
			h.plugins[name].setBehaviour(name, hangUntilDone)
		}
		h.plugins["j/p"].setBehaviour("j/p", endingWith(""))
		p.pollOnce()
		require.Equal(b, operation.Completed, b.recordedStates()[16].Phase)
	}, names...)
}

// No process has acknowledged what it was called to cancel when it died.
func TestAnOperationLostWhileItIsCancelledHasAcknowledgedNothing(t *testing.T) {
	inHomes(t, func(b *bed, h *homes, p *process) {
		h.plugins["i/p"].onCancel("i/p", func(ctx context.Context, _ time.Duration) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
		p.turn.Cancel = "the backup is cancelled"
		require.False(b, p.pollFor(10*time.Second))
		h.plugins["i/p"].setBehaviour("i/p", failingWith(fmt.Errorf("%w: instance i has ended", operationhome.ErrGone)))
		require.True(b, p.pollFor(30*time.Second))
		require.Contains(b, b.errorOf(0), "the backup is cancelled, the cancel was not acknowledged: the operation is lost")
	}, "i/p")
}

// A process is not kept for an operation that was given up. Calls to forget are as bounded as others, and
// none is made about what has ended.
func TestForgettingIsBounded(t *testing.T) {
	var names []string
	for i := range 20 {
		names = append(names, "i/"+string(rune('a'+i)))
	}
	inHomes(t, func(b *bed, h *homes, p *process) {
		h.slow = time.Second
		for i, name := range names {
			h.plugins[name].onCancel(name, func(context.Context, time.Duration) (bool, error) { return false, nil })
			switch i {
			case 0:
				h.plugins[name].setBehaviour(name, endingWith(""))
			case 1:
				h.plugins[name].setBehaviour(name, failingWith(fmt.Errorf("%w: ended", operationhome.ErrGone)))
			}
		}
		p.turn.Cancel = "the backup is cancelled"
		require.True(b, p.pollFor(5*time.Minute))
		time.Sleep(time.Minute)
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Len(b, h.forgot, 18)
		require.LessOrEqual(b, h.most, 9)
	}, names...)
}
