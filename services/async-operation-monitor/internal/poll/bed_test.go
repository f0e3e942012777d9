package poll_test

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

const (
	frequency = 10 * time.Second
	grace     = time.Minute
	limit     = 4 * time.Hour
)

var theJob = operation.Job{Kind: operation.KindBackup, Name: "b", UID: "u"}

// plugins are actions whose operations proceed as the test sets. Safe for concurrent use.
type plugins struct {
	mu       sync.Mutex
	progress map[string]func(ctx context.Context) (action.Progress, error) // by ID; without one an operation runs
	cancel   map[string]func(ctx context.Context, grace time.Duration) (bool, error)
	asked    []call
	told     []call
	now, top map[string]int // calls under way by action, and the most of them
}

type call struct {
	id string
	at time.Time
}

func newPlugins() *plugins {
	return &plugins{
		progress: map[string]func(context.Context) (action.Progress, error){}, cancel: map[string]func(context.Context, time.Duration) (bool, error){},
		now: map[string]int{}, top: map[string]int{},
	}
}

func (p *plugins) enterCall(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[name]++
	p.top[name] = max(p.top[name], p.now[name])
}

// maxConcurrent returns how many calls of an action were under way at once.
func (p *plugins) maxConcurrent(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.top[name]
}

func (p *plugins) leaveCall(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[name]--
}

// Progress implements action.Operations.
func (p *plugins) Progress(ctx context.Context, op action.Operation, _ []byte) (action.Progress, error) {
	p.enterCall(op.Action)
	defer p.leaveCall(op.Action)
	p.mu.Lock()
	p.asked = append(p.asked, call{op.ID, time.Now()})
	do := p.progress[op.ID]
	p.mu.Unlock()
	if do == nil {
		return action.Progress{}, nil
	}
	return do(ctx)
}

// Cancel implements action.Operations.
func (p *plugins) Cancel(ctx context.Context, op action.Operation, _ []byte, grace time.Duration) (bool, error) {
	p.enterCall("cancel " + op.Action)
	defer p.leaveCall("cancel " + op.Action)
	p.mu.Lock()
	p.told = append(p.told, call{op.ID, time.Now()})
	do := p.cancel[op.ID]
	p.mu.Unlock()
	if do == nil {
		return true, nil
	}
	return do(ctx, grace)
}

// Logs implements action.Operations.
func (*plugins) Logs(context.Context, action.Operation, []byte, time.Time, bool) iter.Seq2[action.LogLine, error] {
	return func(func(action.LogLine, error) bool) {}
}

func (p *plugins) setBehaviour(id string, do func(ctx context.Context) (action.Progress, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress[id] = do
}

func (p *plugins) onCancel(id string, do func(ctx context.Context, grace time.Duration) (bool, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel[id] = do
}

// countCalls returns how often an operation was asked about, and cancelled.
func (p *plugins) countCalls(id string) (asked, told int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := func(c call) bool { return c.id == id }
	return len(p.callTimes(is, p.asked)), len(p.callTimes(is, p.told))
}

func (*plugins) callTimes(is func(call) bool, from []call) (times []time.Time) {
	for _, c := range from {
		if is(c) {
			times = append(times, c.at)
		}
	}
	return times
}

func (p *plugins) askedAt(id string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.callTimes(func(c call) bool { return c.id == id }, p.asked)
}

func endingWith(text string) func(context.Context) (action.Progress, error) {
	return func(context.Context) (action.Progress, error) { return action.Progress{Done: true, Err: text}, nil }
}

func failingWith(err error) func(context.Context) (action.Progress, error) {
	return func(context.Context) (action.Progress, error) { return action.Progress{}, err }
}

func hangUntilDone(ctx context.Context) (action.Progress, error) {
	<-ctx.Done()
	return action.Progress{}, ctx.Err()
}

// counts are metrics.
type counts struct {
	mu     sync.Mutex
	polled map[string]int
	ended  map[string]int
	stalls int
}

// Polled implements poll.Metrics.
func (c *counts) Polled(result string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polled[result]++
}

// Ended implements poll.Metrics.
func (c *counts) Ended(result string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[result]++
}

// Stalled implements poll.Metrics.
func (c *counts) Stalled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stalls++
}

// bed is a job with operations in the time of a bubble.
type bed struct {
	*testing.T
	store   *memstore.Store
	plugins *plugins
	counts  *counts
	turn    poll.Input
}

// inBubble runs a test about a job with operations of those IDs.
func inBubble(t *testing.T, ids []string, do func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{
			T: t, store: memstore.New(), plugins: newPlugins(), counts: &counts{polled: map[string]int{}, ended: map[string]int{}},
			turn: poll.Input{JSON: []byte("{}"), Timeout: limit},
		}
		list := operation.List{Job: theJob, Epoch: 1}
		for _, id := range ids {
			list.Operations = append(list.Operations, operation.Operation{
				Action: "vendor.io/" + id[:1], Kind: "BackupItemActionV2", ID: id, Created: time.Now(), Item: operation.Resource{Resource: "pods", Namespace: "n", Name: id},
			})
		}
		b.sealOperations(list)
		do(b)
	})
}

func (b *bed) sealOperations(list operation.List) {
	b.Helper()
	_, err := operation.Seal(b.Context(), b.store, list)
	require.NoError(b, err)
}

// process is a poller with the job in its memory.
type process struct {
	*bed
	poller *poll.Poller
	job    *poll.Job
	stalls []poll.Stall
}

// startProcess starts a process. It ends with the test, or when it is closed.
func (b *bed) startProcess(change ...func(*poll.Config)) *process {
	b.Helper()
	cfg := poll.Config{Actions: &operation.Actions{Shared: b.plugins}, Metrics: b.counts, Clock: clock.RealClock{}, Frequency: frequency, Grace: grace}
	for _, c := range change {
		c(&cfg)
	}
	p := &process{bed: b, poller: poll.New(b.Context(), cfg)}
	b.Cleanup(p.poller.Close)
	var err error
	p.job, err = p.poller.Open(b.Context(), b.store, theJob)
	require.NoError(b, err)
	return p
}

func (p *process) pollOnce() poll.Report {
	p.Helper()
	r, err := p.job.Poll(p.Context(), p.store, p.turn)
	require.NoError(p, err)
	p.stalls = append(p.stalls, r.Stalled...)
	return r
}

// pollFor polls for a time, or until all operations have ended, and returns whether they have.
func (p *process) pollFor(d time.Duration) bool {
	p.Helper()
	for end := time.Now().Add(d); ; {
		r := p.pollOnce()
		if r.Ended {
			return true
		}
		if time.Now().Add(r.Next).After(end) {
			time.Sleep(time.Until(end))
			return false
		}
		time.Sleep(r.Next)
	}
}

// recordedStates are the operations as another process reads them.
func (b *bed) recordedStates() []operation.State {
	b.Helper()
	l, err := operation.Open(b.Context(), b.store, theJob)
	require.NoError(b, err)
	return l.States()
}

// errorOf is how an operation has failed.
func (b *bed) errorOf(i int) string {
	b.Helper()
	s := b.recordedStates()[i]
	require.Equal(b, operation.Failed, s.Phase)
	return s.Error
}

func (b *bed) countRecords() int {
	return len(slices.DeleteFunc(b.store.Keys(), func(key string) bool { return len(key) < 10 || key[len(key)-4:] == "list" }))
}
