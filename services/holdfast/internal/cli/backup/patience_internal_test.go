package backup

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/command"
)

// A mover Pod takes a while to start: whoever waits for the first message is told.
func TestWaitingForAStreamIsTold(t *testing.T) {
	reader, writer := io.Pipe()
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	g := &command.Global{IOStreams: genericiooptions.IOStreams{ErrOut: writer}, Clock: clock}
	line := make([]byte, 100)
	got, err := awaitFirst(g, func() (string, error) {
		clock.Step(3 * time.Second)
		n, err := reader.Read(line)
		return string(line[:n]), err
	})
	require.NoError(t, err)
	require.Equal(t, "waiting for the service for 3s\n", got)
}
