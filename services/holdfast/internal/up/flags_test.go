package up

import (
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// decided are the shared settings that up decides itself: how the parts of one process reach each
// other, and who may call.
var decided = []string{
	"nats-url", "nats-creds-file", "nats-ca-file", "nats-cert-file", "nats-key-file", "work-dir", "grpc-address", "grpc-advertise-address", "http-address", "tls-cert-file", "tls-key-file", "tls-ca-file",
	"tls-client-ca-file", "tls-server-names", "auth", "auth-audience", "auth-token-file", "nats-stream-replicas",
}

// TestUpTakesTheFlagsOfEveryService: up has --plugin-dir and the format of its log, and refuses
// --concurrent-backups and all the others.
func TestUpTakesTheFlagsOfEveryService(t *testing.T) {
	g := &command.Global{}
	cmd := NewCommand(g)
	g.BindFlags(cmd.Flags())
	for _, k := range serviceKinds() {
		own := pflag.NewFlagSet(k.name, pflag.ContinueOnError)
		k.bind(own)
		own.VisitAll(func(f *pflag.Flag) { require.NotNil(t, cmd.Flags().Lookup(f.Name), "--%s of %s", f.Name, k.name) })
	}
	options, shared := service.Defaults("x", service.Ports{}), pflag.NewFlagSet("", pflag.ContinueOnError)
	options.BindFlags(shared)
	shared.VisitAll(func(f *pflag.Flag) {
		require.Equal(t, slices.Contains(decided, f.Name), cmd.Flags().Lookup(f.Name) == nil, f.Name)
	})
}

func TestAFlagOfSeveralServicesSetsAll(t *testing.T) {
	var one, two struct {
		timeout time.Duration
		list    []string
		on      bool
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	bindServices(fs, []serviceKind{
		{name: "one", bind: func(fs *pflag.FlagSet) {
			fs.DurationVar(&one.timeout, "timeout", time.Second, "wait")
			fs.StringSliceVar(&one.list, "list", nil, "items")
		}},
		{name: "two", bind: func(fs *pflag.FlagSet) {
			fs.DurationVar(&two.timeout, "timeout", time.Minute, "wait longer")
			fs.BoolVar(&two.on, "on", false, "switch")
		}},
	})
	require.Equal(t, time.Minute, two.timeout, "each keeps its default")
	require.Contains(t, fs.FlagUsages(), "wait (one, two) (default 1s)")
	require.NotContains(t, fs.FlagUsages(), "[]")
	require.NoError(t, fs.Parse([]string{"--timeout=3s", "--list=a,b", "--list=c", "--on"}))
	require.Equal(t, 3*time.Second, one.timeout)
	require.Equal(t, 3*time.Second, two.timeout)
	require.Equal(t, []string{"a", "b", "c"}, one.list)
	require.True(t, two.on)
	require.ErrorContains(t, fs.Parse([]string{"--timeout=soon"}), "--timeout")
}
