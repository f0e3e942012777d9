package pluginstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// Compose implements objectstore.Writer: the sources are read one after the other and sent on, and
// then read back.
func (s *Store) Compose(ctx context.Context, key string, src []objectstore.Source) (objectstore.Info, error) {
	if err := checkCall(ctx, key); err != nil {
		return objectstore.Info{}, err
	}
	for i, p := range src {
		if p.Data != nil {
			continue
		}
		if err := errors.Join(objectstore.CheckKey(p.Key), objectstore.CheckRange(p.Key, p.Offset)); err != nil {
			return objectstore.Info{}, fmt.Errorf("compose %s: source %d: %w", key, i, err)
		}
	}
	c := &concat{ctx: ctx, store: s, src: src}
	defer c.close()
	return s.createObject(ctx, "compose", key, c)
}

// concat reads sources one after the other.
type concat struct {
	ctx   context.Context // of the call; a reader has no other way to get it
	store *Store
	src   []objectstore.Source
	next  int

	current io.Reader // of src[next-1]
	closer  io.Closer
	left    int64 // of current, negative for all there is
}

func (c *concat) Read(p []byte) (int, error) {
	for {
		if c.current == nil {
			if c.next == len(c.src) {
				return 0, io.EOF
			}
			c.next++
			if err := c.beginSource(&c.src[c.next-1]); err != nil {
				return 0, c.readError(err)
			}
		}
		n, err := c.read(p)
		if errors.Is(err, io.EOF) {
			c.close()
			err = nil
		}
		if n > 0 || err != nil {
			return n, c.readError(err)
		}
	}
}

func (c *concat) readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("source %d: %w", c.next-1, err)
}

func (c *concat) beginSource(p *objectstore.Source) error {
	if p.Data != nil {
		c.current, c.left = bytes.NewReader(p.Data), -1
		return nil
	}
	rc, err := c.store.openObject(c.ctx, p.Key)
	if err != nil {
		return err
	}
	c.current, c.closer, c.left = rc, rc, p.Length
	skipped, err := io.CopyN(io.Discard, rc, p.Offset)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %s ends at %d, before %d", objectstore.ErrInvalidRange, p.Key, skipped, p.Offset)
	}
	return err
}

// read returns io.EOF at the end of the source.
func (c *concat) read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	if c.left > 0 {
		p = p[:min(int64(len(p)), c.left)]
	}
	n, err := c.current.Read(p)
	if c.left > 0 {
		c.left -= int64(n)
		if errors.Is(err, io.EOF) && c.left > 0 {
			return n, fmt.Errorf("%w: %s: %d bytes are not there", objectstore.ErrInvalidRange, c.src[c.next-1].Key, c.left)
		}
	}
	return n, err
}

func (c *concat) close() {
	if c.closer != nil {
		_ = c.closer.Close() // read only
	}
	c.current, c.closer = nil, nil
}
