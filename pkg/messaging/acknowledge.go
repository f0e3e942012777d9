package messaging

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

// Acknowledgements as JetStream reads them on a message's reply subject (ADR-15).
const (
	ackDone     = "+ACK"
	ackProgress = "+WPI"
	ackAgain    = "-NAK"
	ackTerm     = "+TERM"
)

const (
	ackTimeout   = 5 * time.Second
	deadRetry    = 10 * time.Second
	headerReason = "holdfast-reason"
	reasonBytes  = 1024
)

// acknowledgeHint carries out an outcome, also after shutdown began, so that a finished job is not
// delivered again. What fails is logged only: the server then delivers the hint once more.
func (w *hintWorker) acknowledgeHint(ctx context.Context, msg jetstream.Msg, hint *workv1.Hint, o Outcome) {
	log := w.cfg.Log.With("what", string(w.what), "kind", hint.GetKind(), "name", hint.GetName(), "uid", hint.GetUid())
	if o.err != nil {
		log.WarnContext(ctx, "Failed to handle hint", "error", o.err, "deadLetter", o.kind == outcomeDead)
	}
	var err error
	acking := context.WithoutCancel(ctx)
	switch o.kind {
	case outcomeRetry:
		err = w.confirmAck(acking, msg, ackTimeout, delayBody(o.after))
	case outcomeDead:
		err = w.storeDeadLetter(acking, msg, o.err)
	default:
		err = w.confirmAck(acking, msg, ackTimeout, ackDone)
	}
	if err != nil {
		log.WarnContext(ctx, "Failed to acknowledge hint; it will be delivered again", "error", err)
	}
}

func delayBody(after time.Duration) string {
	return fmt.Sprintf(`%s {"delay": %d}`, ackAgain, after.Nanoseconds())
}

// storeDeadLetter stores the dead letter first: terminating removes the hint.
func (w *hintWorker) storeDeadLetter(ctx context.Context, msg jetstream.Msg, reason error) error {
	text := "no reason given"
	if reason != nil {
		text = strings.ToValidUTF8(strings.NewReplacer("\r", " ", "\n", " ").Replace(reason.Error()), "?")
	}
	text = text[:min(len(text), reasonBytes)]
	header := nats.Header{headerReason: {text}}
	subject := subjectDead + strings.TrimPrefix(msg.Subject(), subjectWork)
	sending, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if err := w.sendMessage(sending, subject, msg.Data(), header); err != nil {
		return fmt.Errorf("store dead letter: %w", errors.Join(err, w.confirmAck(ctx, msg, ackTimeout, delayBody(deadRetry))))
	}
	w.dead.WithLabelValues(string(w.what)).Inc()
	return w.confirmAck(ctx, msg, ackTimeout, ackTerm+" "+text)
}
