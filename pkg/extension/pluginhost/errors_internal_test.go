package pluginhost

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOnlyTheSDKsReasonMeansAnUnknownOperation(t *testing.T) {
	t.Parallel()
	for domain, want := range map[string]string{"holdfast.io": ReasonNoOperation, "kubernetes.io": "", "": ""} {
		s := status.New(codes.NotFound, "gone")
		if domain != "" {
			var err error
			s, err = s.WithDetails(&errdetails.ErrorInfo{Reason: "OPERATION_UNKNOWN", Domain: domain})
			require.NoError(t, err)
		}
		remote := new(RemoteError)
		require.ErrorAs(t, convertStatus(s.Err()), &remote)
		require.Equal(t, codes.NotFound, remote.Code)
		require.Equal(t, want, remote.Reason, domain)
	}
}
