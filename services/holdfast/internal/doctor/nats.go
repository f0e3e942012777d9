package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/pkg/messaging"
)

// checkNATS checks the server, JetStream and the streams.
func (e *examination) checkNATS(ctx context.Context, n *checkNotes) {
	if e.NATS.URL == "" {
		n.addSkipped("", "no address of NATS was given", "give --nats-url or $HOLDFAST_NATS_URL; the chart keeps it in the Secret <release>-nats; that of `holdfast up` is part of it and checked by its services")
		return
	}
	state, err := messaging.Inspect(ctx, e.NATS)
	switch {
	case errors.Is(err, messaging.ErrNoJetStream):
		n.addFailure("", err.Error(), "turn JetStream on in NATS's configuration (jetstream {...}), and for the account")
		return
	case err != nil:
		n.addFailure("", err.Error(), "check --nats-url and its credentials, --nats-ca-file and --nats-creds-file, and the way to NATS")
		return
	}
	if state.Storage >= 0 && state.Storage < state.Needed {
		n.addFailure("account", fmt.Sprintf("file storage is limited to %d bytes, and the streams may take %d", state.Storage, state.Needed), "raise the account's limit on JetStream's file storage")
	} else {
		n.addOK("", "NATS "+state.Server+" with JetStream")
	}
	for i := range state.Streams {
		e.checkStream(n, &state.Streams[i])
	}
}

func (e *examination) checkStream(n *checkNotes, s *messaging.StreamState) {
	subject := "stream " + s.Name
	switch {
	case s.Missing:
		n.addFailure(subject, "it does not exist", "start the services, which create it; if they run, their logs say why they could not")
	case e.StreamReplicas > 0 && s.Replicas != e.StreamReplicas:
		n.addFailure(subject, fmt.Sprintf("it has %d copies and not %d", s.Replicas, e.StreamReplicas),
			fmt.Sprintf("nats stream edit %s --replicas %d: services leave the copies of streams that exist as they are", s.Name, e.StreamReplicas))
	case s.Current < s.Replicas:
		n.addWarning(subject, fmt.Sprintf("%d of its %d copies are up to date", s.Current, s.Replicas), "see which server of NATS is away (nats server report jetstream)")
	case len(s.Differs) > 0:
		n.addWarning(subject, strings.Join(s.Differs, "; "), "start one of the services again: each sets these settings when it starts; `nats stream edit` of others should stop")
	default:
		n.addOK(subject, fmt.Sprintf("%s, settings as expected", strings.Replace(countNoun(s.Replicas, "copy"), "copys", "copies", 1)))
	}
}
