package tarball

import (
	"container/list"
	"context"
	"sync"
)

// cache keeps the segments used last and lets one caller read what several want.
type cache struct {
	mu    sync.Mutex
	limit int64
	size  int64
	slots map[place]*list.Element
	order *list.List // of *slot, used last in front
}

type slot struct {
	at   place
	done chan struct{} // closed when segment or err is set
	seg  *member
	err  error
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, slots: map[place]*list.Element{}, order: list.New()}
}

// get returns the segment at, reading it if it is not there. A failed read is not remembered; who
// waited for it tries on their own.
func (c *cache) get(ctx context.Context, at place, read func(context.Context) (*member, error)) (*member, error) {
	for {
		s, mine := c.slot(at)
		if mine {
			seg, err := read(ctx)
			c.fill(s, seg, err)
			return seg, err
		}
		select {
		case <-s.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if s.err == nil {
			return s.seg, nil
		}
	}
}

// slot returns the slot of at; mine reports that the caller has to fill it.
func (c *cache) slot(at place) (s *slot, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.slots[at]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*slot), false //nolint:forcetypeassert // holds nothing else
	}
	s = &slot{at: at, done: make(chan struct{})}
	c.slots[at] = c.order.PushFront(s)
	return s, true
}

// fill fills s and evicts others beyond the limit.
func (c *cache) fill(s *slot, seg *member, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(s.done)
	s.seg, s.err = seg, err
	e, ok := c.slots[s.at]
	if !ok || e.Value != any(s) {
		return
	}
	if s.err != nil || s.seg.size > c.limit {
		c.remove(e)
		return
	}
	c.size += s.seg.size
	for e := c.order.Back(); c.size > c.limit && e != nil; {
		prev := e.Prev()
		if old := e.Value.(*slot); old != s && old.seg != nil { //nolint:forcetypeassert // holds nothing else
			c.size -= old.seg.size
			c.remove(e)
		}
		e = prev
	}
}

func (c *cache) remove(e *list.Element) {
	delete(c.slots, e.Value.(*slot).at) //nolint:forcetypeassert // holds nothing else
	c.order.Remove(e)
}

func (c *cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots, c.size = map[place]*list.Element{}, 0
	c.order.Init()
}
