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
	for flag, spoil := range map[string]func(*pluginhost.Flags){
		"--plugin-call-timeout":    func(f *pluginhost.Flags) { f.CallTimeout = time.Millisecond },
		"--plugin-query-timeout":   func(f *pluginhost.Flags) { f.QueryTimeout = -1 },
		"--plugin-storage-timeout": func(f *pluginhost.Flags) { f.StorageTimeout = 1 },
		"--plugin-start-timeout":   func(f *pluginhost.Flags) { f.StartTimeout = 0 },
		"--plugin-answer-bytes":    func(f *pluginhost.Flags) { f.AnswerBytes = 1 << 30 },
	} {
		var f pluginhost.Flags
		f.BindFlags(pflag.NewFlagSet("x", pflag.ContinueOnError))
		spoil(&f)
		field := new(errgrpc.FieldError)
		require.ErrorAs(t, f.Validate(), &field)
		require.Equal(t, flag, field.Field)
	}
}
