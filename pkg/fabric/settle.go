package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	workv1 "github.com/holdfast-io/holdfast/proto/gen/holdfast/work/v1"
)

// Verdicts as JetStream reads them on a message's reply subject (ADR-15).
const (
	ackDone     = "+ACK"
	ackProgress = "+WPI"
	ackAgain    = "-NAK"
	ackTerm     = "+TERM"
)

const (
	settleLimit  = 5 * time.Second
	deadRetry    = 10 * time.Second
	pollRetry    = time.Minute
	headerReason = "holdfast-reason"
	reasonBytes  = 1024
)

// settle carries out an outcome. It works on after shutdown began, so that a
// finished job is not delivered again. What fails is logged only: the server
// then delivers the hint once more.
func (w *worker) settle(ctx context.Context, msg jetstream.Msg, hint *workv1.Hint, o Outcome) {
	log := w.cfg.Log.With("what", string(w.what), "kind", hint.GetKind(), "name", hint.GetName(), "uid", hint.GetUid())
	if o.verdict == verdictDead && w.what == WorkOperationPoll {
		o = Retry(pollRetry, o.err)
	}
	if o.err != nil {
		log.WarnContext(ctx, "hint not done", "error", o.err, "deadLetter", o.verdict == verdictDead)
	}
	var err error
	settling := context.WithoutCancel(ctx)
	switch o.verdict {
	case verdictRetry:
		err = w.confirm(settling, msg, settleLimit, delayed(o.after))
	case verdictDead:
		err = w.bury(settling, msg, o.err)
	default:
		if err = w.confirm(settling, msg, settleLimit, ackDone); err == nil || o.verdict == verdictAgain {
			w.followUp(ctx, hint, o.verdict)
		}
	}
	if err != nil {
		log.WarnContext(ctx, "hint not settled, it will be delivered again", "error", err)
	}
}

func delayed(after time.Duration) string {
	return fmt.Sprintf(`%s {"delay": %d}`, ackAgain, after.Nanoseconds())
}

// bury stores the dead letter first: terminating removes the hint for good.
func (w *worker) bury(ctx context.Context, msg jetstream.Msg, reason error) error {
	text := "no reason given"
	if reason != nil {
		text = strings.ToValidUTF8(strings.NewReplacer("\r", " ", "\n", " ").Replace(reason.Error()), "?")
	}
	text = text[:min(len(text), reasonBytes)]
	header := nats.Header{headerReason: {text}}
	subject := subjectDead + strings.TrimPrefix(msg.Subject(), subjectWork)
	sending, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := w.send(sending, subject, msg.Data(), header); err != nil {
		return fmt.Errorf("store dead letter: %w", errors.Join(err, w.confirm(ctx, msg, settleLimit, delayed(deadRetry))))
	}
	return w.confirm(ctx, msg, settleLimit, ackTerm+" "+text)
}

// followUp publishes the hint again when work is left: after the ack, because
// until then the subject refuses it. It insists until the server accepted or
// shutdown begins; the reconcile of the owner covers the rest.
func (w *worker) followUp(ctx context.Context, hint *workv1.Hint, v verdict) {
	if v != verdictAgain && (w.tune.Left == nil || ctx.Err() != nil || !w.tune.Left(ctx, hint)) {
		return
	}
	publishing := context.WithoutCancel(ctx)
	for {
		err := w.Publish(publishing, w.what, hint)
		if err == nil {
			return
		}
		w.cfg.Log.WarnContext(ctx, "hint not published again", "what", string(w.what), "uid", hint.GetUid(), "error", err)
		if !w.pause(ctx) {
			return
		}
	}
}
