package service

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/pkg/service/grpcserver"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// peerKeepalive ends the calls of a peer whose node is gone: nothing else would end a stream that only receives.
var peerKeepalive = keepalive.ClientParameters{Time: 2 * grpcserver.MinClientPing, Timeout: 20 * time.Second}

// Dial returns a connection to another instance of Holdfast's services, which dials when it is
// first used: with TLS where this service serves with it. The certificate is checked against
// --tls-ca-file, for the name that --tls-server-names has for the instance's service, which has to
// have one there; without that flag, for the host of address. A call that is made for a caller of this service carries the caller's token, any
// other one that of this process. A token goes over TLS, or to a literal loopback address. The
// caller closes the connection. A call whose peer answers no ping for peerKeepalive fails with Unavailable.
func (r *Runtime) Dial(instance, address string) (*grpc.ClientConn, error) {
	names := r.base.Options.TLSServerNames
	name, ok := names[serviceOf(instance)]
	if !ok && len(names) > 0 { // the address alone is what the instance wrote into its Lease
		return nil, fmt.Errorf("--tls-server-names: no name for service %q of instance %q", serviceOf(instance), instance)
	}
	transport, secure, err := clientTLS(r.base.Options, name)
	if err != nil {
		return nil, err
	}
	// Without the proxy of the environment, which does not reach addresses of Pods.
	opts := []grpc.DialOption{grpc.WithNoProxy(), grpc.WithTransportCredentials(transport), grpc.WithUserAgent("holdfast-" + r.base.Name + "/" + telemetry.Version())}
	opts = append(opts, grpc.WithKeepaliveParams(peerKeepalive), grpc.WithChainUnaryInterceptor(r.traceInterceptor(instance)))
	if r.base.Token != "" || r.base.Options.Auth == AuthKubernetes {
		opts = append(opts, grpc.WithPerRPCCredentials(&tokenSource{runtime: r, secure: secure || !isLoopback(address)}))
	}
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return conn, nil
}

// tokenSource presents the token of a call's own caller, else that of this process.
type tokenSource struct {
	runtime *Runtime
	secure  bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t *tokenSource) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if given := metadata.ValueFromIncomingContext(ctx, "authorization"); len(given) == 1 {
		return map[string]string{"authorization": given[0]}, nil
	}
	token, err := t.runtime.callToken()
	if token == "" || err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t *tokenSource) RequireTransportSecurity() bool { return t.secure }

// callToken is that of this process: of the run it belongs to, else of --auth-token-file, else the one
// that it shows to the API server; empty for none.
func (r *Runtime) callToken() (string, error) {
	if r.base.Token != "" {
		return r.base.Token, nil
	}
	if file := cmp.Or(r.base.Options.AuthTokenFile, r.config.BearerTokenFile); file != "" {
		token, err := os.ReadFile(file)
		return strings.TrimSpace(string(token)), err
	}
	return r.config.BearerToken, nil
}
