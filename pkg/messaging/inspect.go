package messaging

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// inspectTimeout bounds the connection of Inspect.
const inspectTimeout = 5 * time.Second

// ErrNoJetStream means that the server or the account has no JetStream.
var ErrNoJetStream = errors.New("JetStream is not enabled")

// State is what a NATS server has of what Holdfast needs.
type State struct {
	// Server is the version of the server.
	Server string
	// Storage is how many bytes the account's file storage may hold, negative without a limit;
	// Needed is how many all streams may take.
	Storage, Needed int64
	// Streams are those that Holdfast needs, in a fixed order.
	Streams []StreamState
}

// StreamState is one stream.
type StreamState struct {
	Name string
	// Missing streams are created by the first service that starts.
	Missing bool
	// Replicas is how many copies there are, Current how many of them are up to date.
	Replicas, Current int
	// Differs are the settings that are not those that the services give the stream, replicas
	// excepted.
	Differs []string
}

// Inspect connects once, reads and changes nothing. An error is why nothing can be read: the
// connection, or ErrNoJetStream. Of cfg only what is about the connection is used; errors show no
// credentials.
func Inspect(ctx context.Context, cfg Config) (*State, error) {
	if err := CheckURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("url %w", err)
	}
	options, err := connectOptions(cfg)
	if err != nil {
		return nil, err
	}
	options = append(options, nats.RetryOnFailedConnect(false), nats.MaxReconnects(0), nats.Timeout(inspectTimeout))
	conn, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", telemetry.RedactError(err))
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("connect to nats: %w", err)
	}
	state := &State{Server: conn.ConnectedServerVersion()}
	account, err := js.AccountInfo(ctx)
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return nil, fmt.Errorf("%w: %w", ErrNoJetStream, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the JetStream account: %w", err)
	}
	state.Storage = account.Limits.MaxStore
	for _, want := range streamConfigs(max(cfg.Replicas, 1)) {
		state.Needed += want.MaxBytes
		stream, err := inspectStream(ctx, js, want)
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", want.Name, err)
		}
		state.Streams = append(state.Streams, stream)
	}
	return state, nil
}

func inspectStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (StreamState, error) {
	state := StreamState{Name: want.Name}
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		state.Missing = true
		return state, nil
	}
	if err != nil {
		return state, err
	}
	info := stream.CachedInfo()
	state.Replicas, state.Current, state.Differs = max(info.Config.Replicas, 1), 1, streamDifferences(info.Config, want)
	if info.Cluster == nil {
		return state, nil
	}
	if info.Cluster.Leader == "" {
		state.Current = 0
	}
	for _, peer := range info.Cluster.Replicas {
		if peer.Current && !peer.Offline {
			state.Current++
		}
	}
	return state, nil
}

// streamDifferences names the settings of a stream that are not the wanted ones, with both values.
func streamDifferences(have, want jetstream.StreamConfig) []string {
	var out []string
	wanted := streamSettings(want)
	for i, s := range streamSettings(have) {
		if s.value != wanted[i].value {
			out = append(out, fmt.Sprintf("%s is %s and not %s", s.name, s.value, wanted[i].value))
		}
	}
	return out
}

// streamSetting is one setting of a stream and its value as text.
type streamSetting struct{ name, value string }

// streamSettings are those that streams are compared by, in the same order for each.
func streamSettings(c jetstream.StreamConfig) []streamSetting {
	return []streamSetting{
		{"subjects", fmt.Sprint(c.Subjects)},
		{"retention", c.Retention.String()},
		{"storage", c.Storage.String()},
		{"max bytes", fmt.Sprint(c.MaxBytes)},
		{"max message size", fmt.Sprint(c.MaxMsgSize)},
		{"max age", c.MaxAge.String()},
		{"discard", c.Discard.String()},
		{"discard per subject", fmt.Sprint(c.DiscardNewPerSubject)},
		{"max messages per subject", fmt.Sprint(max(c.MaxMsgsPerSubject, 0))}, // a server reports none as -1
	}
}
