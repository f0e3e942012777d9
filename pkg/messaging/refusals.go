package messaging

import (
	"errors"
	"io"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"
)

// logRefusals logs why a server that can be reached refuses the connection, once in a row for each reason, until the
// connection is closed. nats has no handler for these errors before the first connection. Statuses are registered
// before the connection can be closed.
func logRefusals(conn *nats.Conn, statuses <-chan nats.Status, log *slog.Logger) {
	last := ""
	for status := range statuses {
		err := conn.LastError()
		var network *net.OpError
		switch {
		case status == nats.CLOSED:
			return
		case status == nats.CONNECTED:
			last = ""
		case err == nil, errors.Is(err, io.EOF), errors.As(err, &network) && network.Op != "remote error": // nothing answers, see logConnection
		case err.Error() != last:
			last = err.Error()
			log.Warn("NATS refuses the connection; will retry", "error", err)
		}
	}
}
