// Package messaging moves work and events between services over NATS JetStream.
//
// A message is a hint: "look at this object now". The truth is in custom resources and the bucket,
// so every guarantee here is about promptness, never about correctness: deleting every stream loses
// nothing but time, because each service reconciles its own phases and publishes again.
package messaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// What names one kind of work; all replicas of its owner share one consumer.
type What string

// The kinds of work and what a consumer does on a hint.
const (
	WorkBackupRun   What = "backup.run"   // claim and run a Backup, or finalize it
	WorkRestoreRun  What = "restore.run"  // claim and run a Restore, or finalize it
	WorkDeletionRun What = "deletion.run" // run a DeleteBackupRequest
	// WorkOperationPoll asks about the operations of a Backup or Restore that waits for them. Its
	// hint is delivered again after each poll, until the job waits no more.
	WorkOperationPoll What = "operation.poll"
)

// ErrInvalidHint reports a hint that breaks the rules of its contract, naming the field.
var ErrInvalidHint = errors.New("invalid hint")

// Config describes a connection.
type Config struct {
	URL       string // one URL or a comma-separated list
	CredsFile string // NATS credentials file; empty means none
	// CAFile is a PEM file that servers are checked against; with it TLS is used with any scheme
	// of the URL. CertFile and KeyFile are those of the certificate presented to servers. All are read
	// again for every connection; empty means none.
	CAFile, CertFile, KeyFile string

	Name  string // connection name shown by the server
	Log   *slog.Logger
	Clock clock.WithTicker
	// Tracer makes the producer and consumer spans; nil makes none, trace context is passed on all
	// the same.
	Tracer trace.TracerProvider
	// Metrics takes the metrics of the connection; nil takes none.
	Metrics prometheus.Registerer
	// Installation names what this client works for, in letters, digits and "-": messages reach
	// clients of the same name only. It is called until it has succeeded once; nil means no name.
	Installation func(ctx context.Context) (string, error)
	// Replicas of the streams when they are created; 0 means 1. Existing streams keep theirs.
	Replicas int
}

// Client is a connection to NATS. It reconnects indefinitely; during an outage publishing returns
// errors and consuming waits. Safe for concurrent use.
type Client struct {
	cfg    Config
	conn   *nats.Conn
	js     jetstream.JetStream
	tracer trace.Tracer
	name   installation
	dead   *prometheus.CounterVec
}

// Connect starts a connection. An unreachable server is not an error: the client keeps trying in
// the background (see Connected). A malformed URL or unreadable credentials file is.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	if err := CheckURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("connect to nats: url %w", err)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider()
	}
	cfg.Replicas = max(cfg.Replicas, 1)
	dead, err := deadLetters(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	options, err := connectOptions(cfg)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", telemetry.RedactError(err))
	}
	go logRefusals(conn, conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED), cfg.Log)
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	return &Client{cfg: cfg, conn: conn, js: js, tracer: cfg.Tracer.Tracer(tracerName), dead: dead}, nil
}

// CheckURL refuses what is not one URL or a comma-separated list of them. The error begins with a
// verb and shows nothing of the text, which may hold a password.
func CheckURL(text string) error {
	if text == "" {
		return errors.New("is empty")
	}
	for i, one := range strings.Split(text, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		if u, err := url.Parse(one); err != nil || u.Host == "" {
			return fmt.Errorf("is no URL in its place %d; a %% in a password is written %%25", i+1)
		}
	}
	return nil
}

// connectOptions make the client reconnect without end, and buffer nothing during an outage: a message that arrives
// after it, an old ack above all, may be wrong by then.
func connectOptions(cfg Config) ([]nats.Option, error) {
	options := append(logConnection(cfg.Log),
		nats.Name(cfg.Name), nats.Timeout(5*time.Second),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(500*time.Millisecond), nats.ReconnectBufSize(-1))
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		options = append(options, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	if cfg.CredsFile == "" {
		return options, nil
	}
	file, err := os.Open(cfg.CredsFile)
	if err != nil {
		return nil, fmt.Errorf("nats credentials file: %w", err)
	}
	return append(options, nats.UserCredentials(cfg.CredsFile)), file.Close()
}

// logConnection logs the loss of a connection, or that it cannot be made, and its return: once each,
// not for every attempt.
func logConnection(log *slog.Logger) []nats.Option {
	lost := false // nats calls handlers one at a time
	reportLoss := func(_ *nats.Conn, err error) {
		if err != nil && !lost { // nil: closed by this process
			lost = true
			log.Warn("No connection to NATS; will retry", "error", err)
		}
	}
	reportReturn := func(conn *nats.Conn) {
		lost = false
		log.Info("Connected to NATS", "url", conn.ConnectedUrlRedacted())
	}
	return []nats.Option{
		nats.DisconnectErrHandler(reportLoss), nats.ReconnectErrHandler(reportLoss),
		nats.ConnectHandler(reportReturn), nats.ReconnectHandler(reportReturn),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !lost { // else it is of an attempt to connect, see logRefusals
				log.Warn("NATS reported an error", "error", err)
			}
		}),
	}
}

// Connected reports whether the connection is up now.
func (c *Client) Connected() bool { return c.conn.IsConnected() }

// Close ends the connection. Consume must have returned.
func (c *Client) Close() { c.conn.Close() }

// pauseBeforeRetry waits a moment before a failed call is repeated; false when ctx ended.
func (c *Client) pauseBeforeRetry(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.cfg.Clock.After(repairPause):
		return true
	}
}

// repairPause is how long a failed call to JetStream rests before the next one.
const repairPause = 500 * time.Millisecond
