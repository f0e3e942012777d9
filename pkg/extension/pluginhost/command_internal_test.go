package pluginhost

import (
	"bufio"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

func newDiscardOutput(t *testing.T) *output {
	t.Helper()
	return newOutput(t.Context(), slog.New(slog.DiscardHandler), clock.RealClock{}, Limits{}.withDefaults())
}

func TestAProcessThatWasKilledBeforeItHadAnIDEnds(t *testing.T) {
	t.Parallel()
	c := newCommand("/bin/sleep", []string{"1000000"}, newDiscardOutput(t), time.Second)
	c.killProcess()
	require.NoError(t, c.Start(t.Context()))
	require.ErrorContains(t, c.Wait(t.Context()), "killed")
}

func TestOnlyTheFieldsOfTheHandshakeThatCountArePassedOn(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"1|2|unix|/x|grpc|CERT|true\n": "1|2|unix|/x|grpc",
		"1|2|unix|/x|grpc|\nmore|":     "1|2|unix|/x|grpc",
		"1|2|unix|/x|grpc":             "1|2|unix|/x|grpc",
		"1|2|unix\n":                   "1|2|unix",
		"hello\n":                      "hello",
	} {
		f := newFirstLine()
		_, err := f.Write([]byte(line))
		require.NoError(t, err)
		f.endLine() // of the process
		scanner := bufio.NewScanner(f)
		require.True(t, scanner.Scan())
		require.Equal(t, want, scanner.Text())
		require.False(t, scanner.Scan())
	}
}
