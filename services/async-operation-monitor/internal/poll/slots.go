package poll

import (
	"sync"
	"sync/atomic"
)

// callSlots bounds the calls of each action: to a number for all jobs, and one more for each job, so
// that no job waits for the calls of others to end. Safe for concurrent use.
type callSlots struct {
	size  int
	mu    sync.Mutex
	of    map[string]*actionSlots // of the actions that calls are made to
	freed chan struct{}           // closed when a slot is free again
}

type actionSlots struct {
	shared int
	own    map[*Job]struct{}
}

func newSlots(size int) *callSlots {
	return &callSlots{size: size, of: map[string]*actionSlots{}, freed: make(chan struct{})}
}

// takeSlot takes a slot of an action for a job: its own one, or one of those for all jobs. Release may
// be called more than once; it is nil where none is free.
func (s *callSlots) takeSlot(action string, job *Job) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of[action]
	if one == nil {
		one = &actionSlots{own: map[*Job]struct{}{}}
		s.of[action] = one
	}
	if _, taken := one.own[job]; !taken {
		one.own[job] = struct{}{}
		return s.releaseOnce(action, func() { delete(one.own, job) })
	}
	if one.shared == s.size {
		return nil
	}
	one.shared++
	return s.releaseOnce(action, func() { one.shared-- })
}

// releaseOnce removes an action that has no calls: names come from buckets and must not accumulate.
func (s *callSlots) releaseOnce(action string, free func()) func() {
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		free()
		if one := s.of[action]; one.shared+len(one.own) == 0 {
			delete(s.of, action)
		}
		close(s.freed)
		s.freed = make(chan struct{})
	})
}

// acquireSlot waits for a slot; nil when closed was closed first.
func (s *callSlots) acquireSlot(action string, job *Job, closed <-chan struct{}) (release func()) {
	for {
		s.mu.Lock()
		freed := s.freed
		s.mu.Unlock()
		if release = s.takeSlot(action, job); release != nil {
			return release
		}
		select {
		case <-freed:
		case <-closed:
			return nil
		}
	}
}

// eachWithSlot calls do for the operations of a list, those of one action in their order and as many at
// once as have slots. None is begun once closed was closed. The channel is closed when all calls
// have returned.
func (j *Job) eachWithSlot(s *callSlots, list []int, closed <-chan struct{}, do func(i int)) <-chan struct{} {
	lists, ops, p := map[string][]int{}, j.log.Operations(), j.poller
	for _, i := range list {
		queue := ops[i].QueueName()
		lists[queue] = append(lists[queue], i)
	}
	var workers sync.WaitGroup
	for action, list := range lists {
		var begun atomic.Int64
		for range min(s.size+1, len(list)) {
			workers.Add(1)
			p.calls.Go(func() {
				defer workers.Done()
				for {
					release := s.acquireSlot(action, j, closed)
					if release == nil {
						return
					}
					n := int(begun.Add(1)) - 1
					if n < len(list) && !isClosed(closed) {
						do(list[n])
					}
					release()
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

func isClosed(closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	default:
		return false
	}
}
