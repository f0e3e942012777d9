package tarball

import (
	"container/list"
	"context"
	"sync"
)

// segmentCache keeps the segments used last and lets one caller read what several want.
type segmentCache struct {
	mu    sync.Mutex
	limit int64
	size  int64
	slots map[segmentPlace]*list.Element
	order *list.List // of *slot, used last in front
}

type cacheSlot struct {
	at   segmentPlace
	done chan struct{} // closed when segment or err is set
	seg  *member
	err  error
}

func newCache(limit int64) *segmentCache {
	return &segmentCache{limit: limit, slots: map[segmentPlace]*list.Element{}, order: list.New()}
}

// getSegment returns the segment at, reading it if it is not there. A failed read is not remembered; who
// waited for it tries on their own.
func (c *segmentCache) getSegment(ctx context.Context, at segmentPlace, read func(context.Context) (*member, error)) (*member, error) {
	for {
		s, mine := c.claimSlot(at)
		if mine {
			seg, err := read(ctx)
			c.fillSlot(s, seg, err)
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

// claimSlot returns the slot of at; mine reports that the caller has to fill it.
func (c *segmentCache) claimSlot(at segmentPlace) (s *cacheSlot, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.slots[at]; ok {
		c.order.MoveToFront(e)
		return e.Value.(*cacheSlot), false //nolint:forcetypeassert // holds nothing else
	}
	s = &cacheSlot{at: at, done: make(chan struct{})}
	c.slots[at] = c.order.PushFront(s)
	return s, true
}

// fillSlot fills s and evicts others beyond the limit.
func (c *segmentCache) fillSlot(s *cacheSlot, seg *member, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(s.done)
	s.seg, s.err = seg, err
	e, ok := c.slots[s.at]
	if !ok || e.Value != any(s) {
		return
	}
	if s.err != nil || s.seg.size > c.limit {
		c.removeElement(e)
		return
	}
	c.size += s.seg.size
	for e := c.order.Back(); c.size > c.limit && e != nil; {
		prev := e.Prev()
		if old := e.Value.(*cacheSlot); old != s && old.seg != nil { //nolint:forcetypeassert // holds nothing else
			c.size -= old.seg.size
			c.removeElement(e)
		}
		e = prev
	}
}

func (c *segmentCache) removeElement(e *list.Element) {
	delete(c.slots, e.Value.(*cacheSlot).at) //nolint:forcetypeassert // holds nothing else
	c.order.Remove(e)
}

func (c *segmentCache) dropSegments() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots, c.size = map[segmentPlace]*list.Element{}, 0
	c.order.Init()
}
