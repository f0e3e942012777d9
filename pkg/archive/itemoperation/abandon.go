package itemoperation

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/job/operation"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// Abandoned is the error of an operation that another server began and that nothing here can ask
// about.
const Abandoned = "another server began the operation, and this version cannot ask about it: it counts as failed"

// stopped ends the error of an operation whose job was ended over it.
const stopped = "; the operation did not end before its job and may go on"

// Stopped is the error of an operation that had not ended when its job was ended for that reason.
func Stopped(reason string) string { return reason + stopped }

// MayGoOn reports whether an error says that an operation counts as failed alone: how it ends is not
// known.
func MayGoOn(err string) bool { return err == Abandoned || strings.HasSuffix(err, stopped) }

// Abandoned reports that the operation has not ended, or counts as failed alone.
func (o *Operation) Abandoned() bool {
	return !o.Done() || o.Status.Phase == PhaseFailed && MayGoOn(o.Status.Error)
}

// Abandon copies a file of operations from r to w, where those that had not ended have failed with
// the error Abandoned at now, and everything else is kept. each is called with every operation as
// it was, and may end one that had not: then its status is the one that is copied. changed reports
// whether the copy differs. What cannot be read wraps ErrCorrupt; errors of
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
	open := !o.Done()
	if c.err = c.each(&o); c.err != nil {
		return c.err
	}
	body := []byte(*raw)
	if open {
		if !o.Done() {
			o.Status.Phase, o.Status.Error, o.Status.Updated = PhaseFailed, Abandoned, &metav1.Time{Time: c.now.UTC()}
		}
		var err error
		if body, err = withStatus(body, &o.Status); err != nil {
			return err
		}
		c.changed = true
	}
	c.text(c.separator(",", "["))
	c.begun = true
	c.text(string(body))
	return c.err
}

// withStatus is an operation with what is known of another status. Velero 1.18 leaves out what is
// empty.
func withStatus(raw []byte, s *Status) ([]byte, error) {
	var whole, status map[string]json.RawMessage
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	if text := whole["status"]; text != nil {
		if err := json.Unmarshal(text, &status); err != nil {
			return nil, err
		}
	}
	if whole == nil {
		whole = map[string]json.RawMessage{}
	}
	if status == nil {
		status = map[string]json.RawMessage{}
	}
	known, err := json.Marshal(writtenStatus{
		Phase: operation.Phase(s.Phase), Error: s.Error, Completed: s.Completed, Total: s.Total, Units: s.Units, Description: s.Description,
		Created: s.Created, Started: s.Started, Updated: s.Updated,
	})
	if err == nil {
		delete(status, "error")
		err = json.Unmarshal(known, &status)
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	whole["status"] = text
	return json.Marshal(whole)
}
