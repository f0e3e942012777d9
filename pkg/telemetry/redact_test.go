package telemetry_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

func TestCredentialsOfURLsAreReplaced(t *testing.T) {
	for text, want := range map[string]string{
		`nats://u:secret@host:4222`:                      `nats://xxxxx@host:4222`,
		`nats://secret@host,nats://u:secret@other`:       `nats://xxxxx@other`,
		`parse "http://u:se%cr/e?t@host": bad`:           `parse "http://xxxxx@host": bad`,
		`dial https://a:secret@x then http://b:secret@y`: `dial https://xxxxx@x then http://xxxxx@y`,
		`parse "x://u:se\"cr'et@host": bad`:              `parse "x://xxxxx@host": bad`,
		`https://host/path`:                              `https://host/path`,
		`mail a@b`:                                       `mail a@b`,
	} {
		require.Equal(t, want, telemetry.RedactURLs(text))
	}
}

func TestErrorsKeepWhatTheyWrap(t *testing.T) {
	_, err := url.Parse(strings.Join([]string{"nats://u:secret", "zz@host"}, "%"))
	require.ErrorContains(t, err, "secret", "what the parser does")
	got := telemetry.RedactError(fmt.Errorf("connect: %w", err))
	require.NotContains(t, got.Error(), "secret")
	require.ErrorContains(t, got, "connect: parse")
	require.ErrorAs(t, got, new(*url.Error))
	plain := errors.New("plain")
	require.Equal(t, plain, telemetry.RedactError(plain))
	require.NoError(t, telemetry.RedactError(nil))
}
