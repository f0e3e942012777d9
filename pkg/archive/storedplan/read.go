package storedplan

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// ReadHeader reads the header of a plan. Errors wrap ErrNotFound or ErrCorrupt, or are the store's.
func ReadHeader(ctx context.Context, store objectstore.Reader, id string) (h *Header, err error) {
	body, err := openFile(ctx, store, id, layout.PlanHeader)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	text, err := io.ReadAll(io.LimitReader(body, maxHeader+1))
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", id, err)
	}
	if h, err = decodeHeader(text); err == nil && h.ID != id {
		err = fmt.Errorf("%w: it calls itself %q", ErrCorrupt, h.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", id, err)
	}
	return h, nil
}

func decodeHeader(text []byte) (*Header, error) {
	if len(text) > maxHeader {
		return nil, fmt.Errorf("%w: the header has more than %d bytes", ErrCorrupt, maxHeader)
	}
	var h Header
	if err := jsonlimit.Unmarshal(text, &h, decodedRatio*maxHeader); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrCorrupt, err)
	}
	if h.FormatVersion != FormatVersion {
		return nil, fmt.Errorf("%w: format version %q is unknown", ErrCorrupt, h.FormatVersion)
	}
	if h.Kind != KindRestore && h.Kind != KindBackup {
		return nil, fmt.Errorf("%w: kind %q is unknown", ErrCorrupt, h.Kind)
	}
	return &h, nil
}

func openFile(ctx context.Context, store objectstore.Reader, id string, key func(string) string) (io.ReadCloser, error) {
	if err := layout.CheckName(id); err != nil {
		return nil, fmt.Errorf("%w: id: %w", ErrNotFound, err)
	}
	body, err := store.Get(ctx, key(id))
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", id, err)
	}
	return body, nil
}

// Rows reads the rows of a plan in their order. An error is the last element.
func Rows(ctx context.Context, store objectstore.Reader, id string) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		body, err := openFile(ctx, store, id, layout.PlanRows)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = body.Close() }() // was read as far as wanted
		decodeRows(body, yield)
	}
}

// decodeRows decodes lines until yield returns false. Rows that do not ascend are ErrCorrupt.
func decodeRows(packed io.Reader, yield func(*Row, error) bool) {
	in := &objectstore.ErrorReader{Reader: packed}
	explain := func(err error) error {
		if in.Err != nil {
			return fmt.Errorf("read the rows of a plan: %w", in.Err)
		}
		return fmt.Errorf("%w: rows: %w", ErrCorrupt, err)
	}
	text, err := gzip.NewReader(in)
	if err != nil {
		yield(nil, explain(err))
		return
	}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, maxLine)
	last := ""
	for n := 1; lines.Scan(); n++ {
		r := new(Row)
		err := jsonlimit.Unmarshal(lines.Bytes(), r, maxDecoded)
		key := r.Key()
		if err == nil && (r.Kind == "" || r.Name == "" || n > 1 && key <= last) {
			err = errors.New("no object, or out of order")
		}
		if err != nil {
			yield(nil, fmt.Errorf("%w: row %d: %w", ErrCorrupt, n, err))
			return
		}
		if last = key; !yield(r, nil) {
			return
		}
	}
	if err := lines.Err(); err != nil {
		yield(nil, explain(err))
	}
}
