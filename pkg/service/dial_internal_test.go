package service

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"k8s.io/client-go/rest"
)

// whose answers with the authorization it was called with.
type whose struct {
	healthpb.UnimplementedHealthServer
	tokens []string
}

func (w *whose) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	w.tokens = metadata.ValueFromIncomingContext(ctx, "authorization")
	return &healthpb.HealthCheckResponse{}, nil
}

func TestDialPresentsTheTokenOfTheCallerElseItsOwn(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g, heard := grpc.NewServer(), &whose{}
	healthpb.RegisterHealthServer(g, heard)
	ended := make(chan error)
	go func() { ended <- g.Serve(listener) }()
	t.Cleanup(func() {
		g.Stop()
		require.NoError(t, <-ended)
	})
	call := func(r *Runtime, ctx context.Context) []string {
		t.Helper()
		conn, err := r.Dial("runner-x", listener.Addr().String())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		return heard.tokens
	}
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of the account\n"), 0o600))
	run := &Runtime{base: Base{Token: "of the run"}, config: &rest.Config{BearerTokenFile: file}}
	account := &Runtime{base: Base{Options: Options{Auth: AuthKubernetes}}, config: &rest.Config{BearerTokenFile: file}}
	nobody := &Runtime{base: Base{Options: Options{Auth: AuthNone}}, config: &rest.Config{BearerTokenFile: file}}
	audience := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(audience, []byte("for services\n"), 0o600))
	special := &Runtime{base: Base{Options: Options{Auth: AuthKubernetes, AuthTokenFile: audience}}, config: &rest.Config{BearerTokenFile: file}}
	forwarded := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer of ann"))
	require.Equal(t, []string{"Bearer of the run"}, call(run, t.Context()))
	require.Equal(t, []string{"Bearer of ann"}, call(run, forwarded))
	require.Equal(t, []string{"Bearer of the account"}, call(account, t.Context()))
	require.Equal(t, []string{"Bearer of ann"}, call(account, forwarded))
	require.Equal(t, []string{"Bearer for services"}, call(special, t.Context()))
	require.Empty(t, call(nobody, t.Context()))

	_, err = account.Dial("runner-x", "10.0.0.1:7442")
	require.Error(t, err, "no token leaves the machine in the clear")
}

func TestTheAdvertisedAddressHasThePortThatWasTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	for given, want := range map[string]string{"": "127.0.0.1:" + port, "10.0.0.1:0": "10.0.0.1:" + port, "runner-1.runners:7442": "runner-1.runners:7442"} {
		r := &Runtime{base: Base{Options: Options{GRPCAdvertiseAddress: given}}, grpcLis: listener}
		require.Equal(t, want, r.AdvertisedAddr())
	}
	o := Defaults("x", Ports{GRPC: 1, HTTP: 2})
	o.GRPCAdvertiseAddress = "nowhere"
	require.ErrorContains(t, o.Validate(), "--grpc-advertise-address")
}
