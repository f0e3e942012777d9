package cli_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/services/holdfast/internal/cli/clitest"
)

func TestVersionAsksTheServer(t *testing.T) {
	c := clitest.New(t)
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			list := &velerov1.ServerStatusRequestList{}
			if c.List(ctx, list) == nil && len(list.Items) == 1 {
				request := &list.Items[0]
				request.Status = velerov1.ServerStatusRequestStatus{Phase: velerov1.ServerStatusRequestPhaseProcessed, ServerVersion: "v1.18.1"}
				assert.NoError(t, c.Update(ctx, request))
				return
			}
		}
	}()
	result := c.Run(ctx, "", "version")
	require.Equal(t, 0, result.Code, result.Err)
	require.Contains(t, result.Out, "Client: ")
	require.Contains(t, result.Out, "Server: v1.18.1")
}

func TestVersionWithoutAServer(t *testing.T) {
	c := clitest.New(t)
	result := c.Run(t.Context(), "", "version", "--timeout", "50ms")
	require.Equal(t, 1, result.Code)
	require.Contains(t, result.Out, "Client: ")
	require.Contains(t, result.Err, "did not answer")
	require.Equal(t, 0, c.Run(t.Context(), "", "version", "--client-only").Code)
}
