package grpcserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
)

func TestPageTokensThatAreNoOffsetsAreRefused(t *testing.T) {
	for token, want := range map[string]int{"": 0, "0": 0, "250": 250} {
		n, err := grpcserver.PageOffset(token)
		require.NoError(t, err, token)
		require.Equal(t, want, n, token)
	}
	for _, token := range []string{"-1", "x", "1x", "99999999999999999999"} {
		_, err := grpcserver.PageOffset(token)
		var field *errgrpc.FieldError
		require.ErrorAs(t, err, &field, token)
		require.Equal(t, "page_token", field.Field, token)
	}
}
