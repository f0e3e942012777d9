package pluginhost_test

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

func TestFlagsBecomeLimits(t *testing.T) {
	t.Parallel()
	var f pluginhost.Flags
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.BindFlags(fs)
	require.NoError(t, fs.Parse([]string{"--plugin-call-timeout=2m", "--plugin-answer-bytes=1048576"}))
	require.NoError(t, f.Validate())
	require.Equal(t, pluginhost.Limits{
		Start: time.Minute, Query: time.Minute, Execute: 2 * time.Minute, Storage: 10 * time.Minute, Answer: 1 << 20,
	}, f.Limits())
}

func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	for flag, f := range map[string]pluginhost.Flags{
		"--plugin-call-timeout":    {CallTimeout: time.Millisecond},
		"--plugin-query-timeout":   {QueryTimeout: -1},
		"--plugin-storage-timeout": {StorageTimeout: 1},
		"--plugin-start-timeout":   {StartTimeout: 1},
		"--plugin-answer-bytes":    {AnswerBytes: 1 << 30},
	} {
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, f.Validate(), &field)
		require.Equal(t, flag, field.Field)
	}
}
