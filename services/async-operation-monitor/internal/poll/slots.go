package poll

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
)

// slots bounds the calls of each action. Safe for concurrent use.
type slots struct {
	size int
	mu   sync.Mutex
	of   map[string]*slot // of the actions that calls are made to, or wait for
}

type slot struct {
	taken chan struct{}
	users int
}

func newSlots(size int) *slots { return &slots{size: size, of: map[string]*slot{}} }

// acquire waits for a slot of an action; false when closed was closed first.
func (s *slots) acquire(action string, closed <-chan struct{}) bool {
	s.mu.Lock()
	one := s.of[action]
	if one == nil {
		one = &slot{taken: make(chan struct{}, s.size)}
		s.of[action] = one
	}
	one.users++
	s.mu.Unlock()
	select {
	case one.taken <- struct{}{}:
		return true
	case <-closed:
		s.leave(action)
		return false
	}
}

func (s *slots) release(action string) {
	s.mu.Lock()
	<-s.of[action].taken
	s.mu.Unlock()
	s.leave(action)
}

// leave forgets an action that has no calls: their names come from buckets.
func (s *slots) leave(action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[action].users--; s.of[action].users == 0 {
		delete(s.of, action)
	}
}

// each calls do for the operations of a list, those of one action in their order and as many at
// once as have slots. None is begun once closed was closed. The channel is closed when all calls
// have returned.
func (p *Poller) each(s *slots, ops []operation.Operation, list []int, closed <-chan struct{}, do func(i int)) <-chan struct{} {
	lists := map[string][]int{}
	for _, i := range list {
		lists[ops[i].Action] = append(lists[ops[i].Action], i)
	}
	var workers sync.WaitGroup
	for action, list := range lists {
		var begun atomic.Int64
		for range min(s.size, len(list)) {
			workers.Add(1)
			p.calls.Go(func() {
				defer workers.Done()
				for s.acquire(action, closed) {
					n := int(begun.Add(1)) - 1
					if n < len(list) && !over(closed) {
						do(list[n])
					}
					s.release(action)
					if n >= len(list)-1 {
						return
					}
				}
			})
		}
	}
	all := make(chan struct{})
	p.calls.Go(func() {
		workers.Wait()
		close(all)
	})
	return all
}

func over(closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	default:
		return false
	}
}
