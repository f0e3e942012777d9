package poll_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/extension/operationhome"
	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
	"github.com/holdfast-io/holdfast/services/async-operation-monitor/internal/poll"
)

// restartable is a job with one operation in the ended process "i/p", which may be begun once more,
// and the homes with a living instance "j" whose process "j/q" it would live in as "again".
func restartable(t *testing.T, do func(b *bed, h *homes, p *process)) {
	t.Helper()
	inBubble(t, nil, func(b *bed) {
		for _, key := range b.store.Keys() {
			require.NoError(b, b.store.Delete(b.Context(), key))
		}
		h := &homes{plugins: map[string]*plugins{"i/p": newPlugins(), "j/q": newPlugins()}, live: "j"}
		h.plugins["i/p"].on("one", fails(fmt.Errorf("%w: instance i has ended", operationhome.ErrGone)))
		h.restart = func(*action.Restart) (action.Restarted, error) {
			return action.Restarted{ID: "again", Process: "q"}, nil
		}
		b.seal(operation.List{Job: theJob, Epoch: 1, Operations: []operation.Operation{{
			Action: "vendor.io/a", Kind: "AsyncBackupItemAction", ID: "one", Key: "k", Created: time.Now(), Restartable: true, Home: &operation.Home{Instance: "i", Process: "p"},
		}}})
		require.NoError(b, operation.KeepInput(b.Context(), b.store, theJob, "k", operation.Input{Item: json.RawMessage(`{"kind":"Pod"}`)}))
		do(b, h, b.with(h))
	})
}

func (b *bed) with(h *homes) *process {
	b.Helper()
	return b.start(func(c *poll.Config) { c.Homes = h })
}

func TestAnOperationIsBegunOnceMoreAfterItsProcess(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		h.restart = func(call *action.Restart) (action.Restarted, error) {
			require.Equal(t, &action.Restart{Kind: "AsyncBackupItemAction", Action: "vendor.io/a", Key: "k", Job: []byte("{}"), Item: []byte(`{"kind":"Pod"}`)}, call)
			s := b.recorded()[0]
			require.True(t, s.Restarting(), "it is recorded before it is made")
			require.Equal(t, "j", s.Restart.Instance)
			require.Contains(t, s.Restart.Reason, "instance i has ended")
			return action.Restarted{ID: "again", Process: "q"}, nil
		}
		require.False(b, p.run(time.Minute))
		require.True(b, b.recorded()[0].Restarted)
		require.NotEmpty(b, h.plugins["j/q"].askedAt("again"), "it is asked about where it lives now")
		require.Len(b, h.plugins["i/p"].askedAt("one"), 1)
		h.plugins["j/q"].on("again", ends(""))
		require.True(b, p.run(time.Minute))
		require.Equal(b, operation.Completed, b.recorded()[0].Phase)
		require.Equal(b, []string{"j k"}, h.restarts)
	})
}

func TestAnOperationIsBegunOnceMoreAtMostOnce(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		require.False(b, p.run(time.Minute))
		other := b.with(h) // which reads that it was
		h.plugins["j/q"].on("again", fails(fmt.Errorf("%w: process q of instance j has ended", operationhome.ErrGone)))
		require.True(b, other.run(2*frequency))
		require.Equal(b, "the operation is lost: the process that the operation lived in is gone: process q of instance j has ended; it had been begun once more", b.errorOf(0))
		require.True(b, p.run(2*frequency))
		require.Equal(b, []string{"j k"}, h.restarts)
	})
}

// Of two replicas that detect the end of a process one makes the call. An answer that the other got
// about the former process does not apply to the operation that was begun since.
func TestReplicasBeginAnOperationOnceMoreTogether(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		other := b.with(h)
		for range 20 {
			p.poll()
			other.poll()
			time.Sleep(time.Second)
		}
		require.Equal(b, []string{"j k"}, h.restarts)
		require.False(b, b.recorded()[0].Phase.Ended(), "%+v", b.recorded()[0])
		h.plugins["j/q"].on("again", ends(""))
		require.True(b, other.run(time.Minute))
		require.True(b, p.run(time.Minute))
	})
}

// What came of a call is not known when the process that made it has died. It is not made again.
func TestAProcessDiesAsItBeginsAnOperationOnceMore(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		h.restart = nil // it hangs
		p.poll()
		synctest.Wait()
		p.poller.Close()
		other := b.with(h)
		require.True(b, other.run(5*time.Minute))
		require.Contains(b, b.errorOf(0), "begun once more in instance j, and what came of that is not known")
		require.Equal(b, []string{"j k"}, h.restarts)
	})
}

func TestAnOperationThatIsNotBegunOnceMoreFailsAndSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *bed, h *homes, p *process)
		why    string
		calls  int
	}{
		"refused": {func(_ *bed, h *homes, _ *process) {
			h.restart = func(*action.Restart) (action.Restarted, error) { return action.Restarted{}, errors.New("disk full") }
		}, "begun once more in instance j: disk full", 1},
		"no such action": {func(_ *bed, h *homes, _ *process) {
			h.restart = func(*action.Restart) (action.Restarted, error) {
				return action.Restarted{}, fmt.Errorf("%w: own/x", action.ErrUnknownAction)
			}
		}, "it is not begun once more: no such action: own/x", 1},
		"a bucket that does not give the input": {func(b *bed, _ *homes, _ *process) {
			b.store.Inject(func(op memstore.Op, key string) error {
				if op == memstore.OpGet && strings.HasSuffix(key, "/input-k") {
					return errors.New("the bucket is away")
				}
				return nil
			})
		}, "it is not begun once more: read input of an operation", 0},
		"no instance": {func(_ *bed, h *homes, _ *process) { h.live = "" }, "it is not begun once more: no instance answers that can", 0},
		"no input": {func(b *bed, _ *homes, _ *process) {
			for _, key := range b.store.Keys() {
				if strings.HasSuffix(key, "/input-k") {
					require.NoError(b, b.store.Delete(b.Context(), key))
				}
			}
		}, "it is not begun once more: read input of an operation", 0},
		"cancelled": {func(_ *bed, _ *homes, p *process) { p.turn.Cancel = "the backup is cancelled" }, "the operation is lost", 0},
		"too late":  {func(*bed, *homes, *process) { time.Sleep(limit) }, "the operation is lost", 0},
	} {
		t.Run(name, func(t *testing.T) {
			restartable(t, func(b *bed, h *homes, p *process) {
				tc.change(b, h, p)
				require.True(b, p.run(3*time.Minute))
				require.Contains(b, b.errorOf(0), tc.why)
				require.Contains(b, b.errorOf(0), "the process that the operation lived in is gone")
				require.Len(b, h.restarts, tc.calls)
			})
		})
	}
}

// A bucket that does not give the input for a while delays the call. Where it is away when the record
// is written, that is tried again too.
func TestAnInputIsReadAgainOnceTheBucketIsBack(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		var since time.Time
		b.store.Inject(func(op memstore.Op, key string) error {
			if op != memstore.OpGet || !strings.HasSuffix(key, "/input-k") {
				return nil
			}
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) < 30*time.Second {
				return errors.New("the bucket is away")
			}
			return nil
		})
		require.False(b, p.run(time.Minute))
		require.True(b, b.recorded()[0].Restarted)
		require.Equal(b, []string{"j k"}, h.restarts)
	})
}

// lose replaces the operations of a job by others in the ended process, of those actions, which were
// called with so much each.
func (b *bed) lose(h *homes, size int, actions ...string) {
	b.Helper()
	for _, key := range b.store.Keys() {
		require.NoError(b, b.store.Delete(b.Context(), key))
	}
	list := operation.List{Job: theJob, Epoch: 1}
	for i, action := range actions {
		id := fmt.Sprint(i)
		h.plugins["i/p"].on(id, fails(fmt.Errorf("%w: instance i has ended", operationhome.ErrGone)))
		list.Operations = append(list.Operations, operation.Operation{
			Action: action, Kind: "AsyncBackupItemAction", ID: id, Key: id, Created: time.Now(), Restartable: true, Home: &operation.Home{Instance: "i", Process: "p"},
		})
		b.input(id, size)
	}
	b.seal(list)
}

func (b *bed) input(key string, size int) {
	b.Helper()
	item := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	require.NoError(b, operation.KeepInput(b.Context(), b.store, theJob, key, operation.Input{Item: item}))
}

// begun counts the operations that were begun once more.
func (b *bed) begun() (n int) {
	for _, s := range b.recorded() {
		if s.Restarted {
			n++
		}
	}
	return n
}

// All inputs of the operations that one process ran were in memory until the last of these was begun
// once more. They are as large as two objects.
func TestWhatOperationsAreBegunOnceMoreWithIsInBoundedMemory(t *testing.T) {
	for name, tt := range map[string]struct{ input, job int }{"inputs": {3 << 20, 2}, "jobs": {1 << 20, 3 << 20}} {
		t.Run(name, func(t *testing.T) {
			restartable(t, func(b *bed, h *homes, _ *process) {
				var actions []string
				for i := range 8 {
					actions = append(actions, fmt.Sprint("vendor.io/", i))
				}
				b.lose(h, tt.input, actions...)
				p := b.with(h)
				p.turn.JSON = []byte(`"` + strings.Repeat("x", tt.job-2) + `"`)
				var mu sync.Mutex
				read, begun, most := 0, 0, 0
				b.store.Inject(func(op memstore.Op, key string) error {
					if op == memstore.OpGet && strings.Contains(key, "/input-") {
						mu.Lock()
						defer mu.Unlock()
						read++
						most = max(most, read-begun)
					}
					return nil
				})
				h.restart = func(*action.Restart) (action.Restarted, error) {
					time.Sleep(3 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					begun++
					return action.Restarted{ID: "again", Process: "q"}, nil
				}
				require.False(b, p.run(2*time.Minute))
				require.Equal(b, len(actions), b.begun())
				require.Equal(b, len(actions), read)
				require.LessOrEqual(b, most*(tt.input+tt.job), 4*operation.MaxInputBytes)
			})
		})
	}
}

// A plugin whose two actions hang as their operations are begun once more, with more than there is room
// for, delays those of no other one.
func TestAPluginThatHangsDelaysNoOtherThatIsBegunOnceMore(t *testing.T) {
	restartable(t, func(b *bed, h *homes, _ *process) {
		const each = 4
		actions := slices.Repeat([]string{"vendor.io/hangs", "vendor.io/hangs-too"}, each/2)
		for i := range each {
			actions = append(actions, fmt.Sprint("vendor.io/", i))
		}
		b.lose(h, operation.MaxInputBytes-1<<10, actions...)
		h.restart = func(call *action.Restart) (action.Restarted, error) {
			if strings.HasPrefix(call.Action, "vendor.io/hangs") {
				time.Sleep(time.Minute)
				return action.Restarted{}, errors.New("cut off")
			}
			return action.Restarted{ID: "again", Process: "q"}, nil
		}
		for i := range each {
			h.plugins["i/p"].on(fmt.Sprint(each+i), func(context.Context) (action.Progress, error) { return action.Progress{}, nil })
		}
		p := b.with(h)
		require.False(b, p.run(2*frequency))
		for i := range each {
			h.plugins["i/p"].on(fmt.Sprint(each+i), fails(fmt.Errorf("%w: instance i has ended", operationhome.ErrGone)))
		}
		require.False(b, p.run(2*frequency))
		require.Equal(b, each, b.begun())
		for i, s := range b.recorded() {
			require.False(b, s.Phase.Ended(), "%d: %s", i, s.Error)
		}
		p.run(10 * time.Minute)
		for i := range each {
			require.Contains(b, b.errorOf(i), "begun once more in instance j: cut off", "each of them is called")
		}
	})
}

// An operation that waits for its turn for longer than a grace period is begun once more all the same,
// also where no instance answers, or the bucket, for a moment.
func TestAnOperationThatWaitsForItsTurnIsBegunOnceMore(t *testing.T) {
	const took = 50 * time.Second
	for name, breaks := range map[string]func(b *bed, h *homes) (mend func()){
		"no instance": func(_ *bed, h *homes) func() {
			live := func(instance string) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.live = instance
			}
			live("")
			return func() { live("j") }
		},
		"no bucket": func(b *bed, _ *homes) func() {
			b.store.Inject(func(op memstore.Op, key string) error {
				if strings.Contains(key, "/input-") && (op == memstore.OpGet || op == memstore.OpStat) {
					return errors.New("503 once")
				}
				return nil
			})
			return func() { b.store.Inject(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			restartable(t, func(b *bed, h *homes, _ *process) {
				b.lose(h, 10, slices.Repeat([]string{"vendor.io/a"}, 30)...)
				h.restart = func(*action.Restart) (action.Restarted, error) {
					time.Sleep(took)
					return action.Restarted{ID: "again", Process: "q"}, nil
				}
				p := b.with(h)
				require.False(b, p.run(grace+took/2))
				mend := breaks(b, h)
				require.False(b, p.run(grace-took/4)) // the calls under way return
				mend()
				require.False(b, p.run(4*took))
				require.Equal(b, 30, b.begun())
			})
		})
	}
}

// A time in which a job is not polled, as its bucket is away, is not one in which no instance answers.
func TestATimeWithoutPollsDoesNotCount(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		h.live = ""
		require.False(b, p.run(frequency))
		time.Sleep(10 * grace)
		require.False(b, p.run(frequency))
		h.live = "j"
		require.False(b, p.run(2*frequency))
		require.True(b, b.recorded()[0].Restarted)
	})
}

// What was read of an input and then not used is out of memory: another call finds room.
func TestTheRoomOfACallThatIsNotMadeIsFree(t *testing.T) {
	fails := 5 // twice as often as there is room
	for name, hit := range map[string]func(op memstore.Op, key string) bool{
		"the input is not read": func(op memstore.Op, key string) bool {
			return op == memstore.OpGet && strings.HasSuffix(key, "/input-0")
		},
		"the record is not stored": func(op memstore.Op, key string) bool {
			return op == memstore.OpCreate && strings.Contains(key, "/record-")
		},
	} {
		t.Run(name, func(t *testing.T) {
			restartable(t, func(b *bed, h *homes, _ *process) {
				b.lose(h, operation.MaxInputBytes-1<<10, "vendor.io/a")
				p, left := b.with(h), fails
				b.store.Inject(func(op memstore.Op, key string) error {
					if left > 0 && hit(op, key) {
						left--
						return errors.New("the bucket is away")
					}
					return nil
				})
				for left > 0 {
					before := left
					_, _ = p.job.Poll(b.Context(), b.store, p.turn)
					require.Less(b, left, before)
					var err error
					p.job, err = p.poller.Open(b.Context(), b.store, theJob) // it was dropped from memory
					require.NoError(b, err)
				}
				require.False(b, p.run(frequency))
				require.Equal(b, 1, b.begun())
			})
		})
	}
}

// An instance that comes up soon after the end of the one before is waited for.
func TestAnInstanceThatComesUpBeginsTheOperationOnceMore(t *testing.T) {
	restartable(t, func(b *bed, h *homes, p *process) {
		h.live = ""
		require.False(b, p.run(30*time.Second))
		h.mu.Lock()
		h.live = "j"
		h.mu.Unlock()
		require.False(b, p.run(30*time.Second))
		require.True(b, b.recorded()[0].Restarted)
	})
}
