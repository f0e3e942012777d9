package extsort

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"io"
)

// Open opens one sorted stream.
type Open func() (Stream, error)

// check reports whether to go on.
type check func() error

// Merge merges any number of sorted streams into one. At most FanIn are open at once; more are
// first merged into runs. Records with equal keys come in the order of their streams. Closing the
// result closes every stream. The merge, and the stream it returned, fail with the cause of ctx
// once that is done.
func Merge(ctx context.Context, cfg Config, opens []Open) (Stream, error) {
	return mergeStreams(func() error { return context.Cause(ctx) }, cfg.withDefaults(), opens)
}

func mergeStreams(ok check, cfg Config, opens []Open) (Stream, error) {
	for len(opens) > cfg.FanIn {
		var err error
		if opens, err = mergeIntoRuns(ok, cfg, opens); err != nil {
			return nil, err
		}
	}
	return openMerge(ok, opens)
}

// mergeIntoRuns merges streams into runs, in their order, until no more than FanIn are left: a record
// that is in none of these runs is read and written once less. There are more after one call where
// FanIn squared streams were given.
func mergeIntoRuns(ok check, cfg Config, opens []Open) (next []Open, err error) {
	for {
		excess := len(next) + len(opens) - cfg.FanIn
		n := min(cfg.FanIn, excess+1, len(opens))
		if n < 2 {
			return append(next, opens...), nil
		}
		group := opens[:n]
		opens = opens[n:]
		r, err := mergeToRun(ok, cfg, group)
		if err != nil {
			return nil, errors.Join(err, closeStreams(append(next, opens...)))
		}
		next = append(next, func() (Stream, error) { return r.openStream(), nil })
	}
}

func mergeToRun(ok check, cfg Config, group []Open) (*sortedRun, error) {
	m, err := openMerge(ok, group)
	if err != nil {
		return nil, err
	}
	return writeRun(cfg.Dir, m)
}

// closeStreams releases streams that will not be merged: runs hold open files.
func closeStreams(opens []Open) error {
	var errs []error
	for _, open := range opens {
		if s, err := open(); err == nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

func openMerge(ok check, opens []Open) (_ Stream, err error) {
	m := &merge{ok: ok}
	for i, open := range opens {
		s, err := open()
		if err != nil {
			return nil, errors.Join(err, m.Close(), closeStreams(opens[i+1:]))
		}
		m.all = append(m.all, s)
		h := &streamHead{stream: s, order: i}
		switch h.key, h.value, err = s.Next(); {
		case errors.Is(err, io.EOF):
		case err != nil:
			return nil, errors.Join(err, m.Close(), closeStreams(opens[i+1:]))
		default:
			m.heads = append(m.heads, h)
		}
	}
	heap.Init(&m.heads)
	return m, nil
}

// merge is a heap of the streams' first records.
type merge struct {
	ok    check
	all   []Stream
	heads heads
	began bool // heads[0] was given out and must be replaced first
	count int
}

type streamHead struct {
	stream     Stream
	key, value []byte
	order      int
}

type heads []*streamHead

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	c := bytes.Compare(h[i].key, h[j].key)
	return c < 0 || (c == 0 && h[i].order < h[j].order)
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push and Pop belong to container/heap.
func (h *heads) Push(x any) { *h = append(*h, x.(*streamHead)) } //nolint:forcetypeassert // private to this file
func (h *heads) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func (m *merge) Next() (key, value []byte, err error) {
	if m.count++; m.count&1023 == 0 {
		if err := m.ok(); err != nil {
			return nil, nil, err
		}
	}
	if m.began && len(m.heads) > 0 {
		h := m.heads[0]
		switch h.key, h.value, err = h.stream.Next(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&m.heads)
		case err != nil:
			return nil, nil, err
		default:
			heap.Fix(&m.heads, 0)
		}
	}
	m.began = true
	if len(m.heads) == 0 {
		return nil, nil, io.EOF
	}
	return m.heads[0].key, m.heads[0].value, nil
}

func (m *merge) Close() error {
	var errs []error
	for _, s := range m.all {
		errs = append(errs, s.Close())
	}
	m.all, m.heads = nil, nil
	return errors.Join(errs...)
}
