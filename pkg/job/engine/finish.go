package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/pkg/failpoint"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// ErrEnded means that a job had ended otherwise before its end was to be written.
var ErrEnded = errors.New("the job has ended already")

// Finish ends the job by what end does to the object, in the one write that makes its phase terminal,
// as long as the claim holds and the object is not terminal. It removes the mark of the commit, and
// returns the object as it was written. The write is repeated while the API server is away: giving
// up would only let another holder come to the same end later. Where the answer to a write was lost,
// an object that ended is this write's if its content besides the metadata is what was sent. Its errors:
//   - claim.ErrLost: the claim, or the object, is another's. That is checked first: the process that took over announced the end.
//   - ErrEnded: the object is terminal, by another write than this one.
//   - the errors of end, unchanged.
func (h *Held[T]) Finish(ctx context.Context, end func(T) error) (final T, err error) {
	cfg := &h.engine.cfg
	failpoint.HitIn(cfg.Service, "before-terminal")
	sent := map[string]bool{} // what attempts wrote whose answers may have been lost
	err = h.engine.retryLoop().Do(ctx, "write the end of the job", func() error {
		final, err = h.Update(ctx, func(o T) error {
			if cfg.Kind.Terminal(o) {
				return classifyEnd(o, sent)
			}
			if err := end(o); err != nil {
				return err
			}
			mark.ClearCommitting(o)
			text, err := contentJSON(o)
			sent[text] = true
			return err
		})
		return err
	})
	if err == nil {
		failpoint.HitIn(cfg.Service, "terminal-written")
	}
	return final, err
}

// classifyEnd returns kube.ErrSkip if one of the contents that were sent is how the object ended, else
// ErrEnded.
func classifyEnd(o client.Object, sent map[string]bool) error {
	text, err := contentJSON(o)
	switch {
	case err != nil:
		return err
	case sent[text]:
		return kube.ErrSkip
	}
	return ErrEnded
}

// contentJSON is an object without its metadata, which others may have changed since, in the precision
// that JSON keeps.
func contentJSON(o client.Object) (string, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", o, err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", fmt.Errorf("decode %T: %w", o, err)
	}
	delete(fields, "metadata")
	text, err = json.Marshal(fields)
	return string(text), err
}
