package itemoperation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// Abandoned is the error of an operation that another server began and that nothing here can ask
// about.
const Abandoned = "another server began the operation, and this version cannot ask about it: it counts as failed"

// Abandoned reports that the operation has not ended, or was ended by Abandon.
func (o *Operation) Abandoned() bool {
	return !o.Done() || o.Status.Phase == PhaseFailed && o.Status.Error == Abandoned
}

// Abandon copies a file of operations from r to w, where those that had not ended have failed with
// the error Abandoned at now, and everything else is kept. each is called with every operation as
// it was. changed reports whether the copy differs. What cannot be read wraps ErrCorrupt; errors of
// each and of w are returned as they are.
func Abandon(r io.Reader, w io.Writer, now time.Time, each func(*Operation) error) (changed bool, err error) {
	packed, err := gzip.NewReader(r)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	zip := gzip.NewWriter(w)
	c := &copying{out: bufio.NewWriter(zip), now: now, each: each}
	err = jsonlimit.Each(packed, jsonlimit.Limits{Text: fileBytes, Element: operationBytes, Decoded: 2 * operationBytes}, c.one)
	switch {
	case c.err != nil:
		return false, c.err
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	c.text(c.separator("]\n", "[]\n"))
	return c.changed, errors.Join(c.err, c.out.Flush(), zip.Close())
}

// copying is the state of one Abandon.
type copying struct {
	out     *bufio.Writer
	now     time.Time
	each    func(*Operation) error
	begun   bool
	changed bool
	err     error // of each or of writing
}

func (c *copying) separator(later, first string) string {
	if c.begun {
		return later
	}
	return first
}

func (c *copying) text(s string) {
	if c.err == nil {
		_, c.err = c.out.WriteString(s)
	}
}

// one copies an operation. Its own errors are kept apart from those of reading.
func (c *copying) one(raw *json.RawMessage) error {
	var o Operation
	if err := jsonlimit.Unmarshal(*raw, &o, 16*operationBytes); err != nil {
		return err
	}
	if c.err = c.each(&o); c.err != nil {
		return c.err
	}
	body := []byte(*raw)
	if !o.Done() {
		var err error
		if body, err = abandoned(body, c.now); err != nil {
			return err
		}
		c.changed = true
	}
	c.text(c.separator(",", "["))
	c.begun = true
	c.text(string(body))
	return c.err
}

// abandoned is an operation with another status.
func abandoned(raw []byte, now time.Time) ([]byte, error) {
	var operation, status map[string]json.RawMessage
	if err := json.Unmarshal(raw, &operation); err != nil {
		return nil, err
	}
	if text := operation["status"]; text != nil {
		if err := json.Unmarshal(text, &status); err != nil {
			return nil, err
		}
	}
	if operation == nil {
		operation = map[string]json.RawMessage{}
	}
	if status == nil {
		status = map[string]json.RawMessage{}
	}
	for key, value := range map[string]any{"phase": PhaseFailed, "error": Abandoned, "updated": now.UTC().Truncate(time.Second)} {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		status[key] = text
	}
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	operation["status"] = text
	return json.Marshal(operation)
}
