package access_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/site"
	"github.com/holdfast-io/holdfast/pkg/service/certtest"
	_ "github.com/holdfast-io/holdfast/proto/gen/holdfast/backup/v1" // the methods that there are
	_ "github.com/holdfast-io/holdfast/proto/gen/holdfast/deletion/v1"
	_ "github.com/holdfast-io/holdfast/proto/gen/holdfast/manifest/v1"
	_ "github.com/holdfast-io/holdfast/proto/gen/holdfast/operation/v1"
	_ "github.com/holdfast-io/holdfast/proto/gen/holdfast/restore/v1"
	_ "github.com/holdfast-io/holdfast/proto/gen/holdfast/volume/v1"
)

const audience = "holdfast"

// rpcMethod is one of a service as reflection lists it.
type rpcMethod struct {
	name    string // "/service/method"
	streams bool   // answers with a stream
}

// rpcCaller is what a client presents, and the code that every call ends with.
type rpcCaller struct {
	token   string
	present []certtest.Pair
	code    codes.Code
}

// TestEveryMethodRefusesWhoMayNotCall runs the six services as they run in a cluster, and calls each
// method that they serve.
func TestEveryMethodRefusesWhoMayNotCall(t *testing.T) {
	servers, clients := certtest.New(t, "servers"), certtest.New(t, "clients")
	s := newSecuredSite(t, servers.Issue(t, "services", "127.0.0.1"), clients)
	client, err := kubernetes.NewForConfig(s.Cluster.RestConfig())
	require.NoError(t, err)
	may, mayNot, wrong := createToken(t, client, "may-all", audience), createToken(t, client, "may-nothing", audience), createToken(t, client, "may-elsewhere")
	allowPaths(t, client, "may-all", "/holdfast.*")
	allowPaths(t, client, "may-elsewhere", "/holdfast.*")
	own := clients.Issue(t, "own")
	callers := map[string]rpcCaller{
		"no token":             {code: codes.Unauthenticated},
		"a certificate alone":  {present: []certtest.Pair{own}, code: codes.Unauthenticated},
		"a foreign token":      {token: foreign, code: codes.Unauthenticated},
		"another audience":     {token: wrong, code: codes.Unauthenticated},
		"without the right":    {token: mayNot, code: codes.PermissionDenied},
		"and with certificate": {token: mayNot, present: []certtest.Pair{own}, code: codes.PermissionDenied},
		"expired certificate":  {token: may, present: []certtest.Pair{clients.IssueUntil(t, "old", time.Now().Add(-time.Hour))}, code: codes.Unavailable},
		"of another issuer":    {token: may, present: []certtest.Pair{servers.Issue(t, "stranger")}, code: codes.Unavailable},
	}
	tried := map[string]bool{}
	for _, member := range s.Fleet.Members {
		methods := reflectedMethods(t, connectService(t, member.GRPC, servers))
		require.NotEmpty(t, methods, member.Service)
		for name, c := range callers {
			conn := connectService(t, member.GRPC, servers, c.present...)
			for _, m := range methods {
				require.Equal(t, c.code, callMethod(t, conn, m, c.token), "%s of %s: %s", m.name, member.Service, name)
				tried[m.name] = true
			}
		}
		for _, c := range []rpcCaller{{}, {present: []certtest.Pair{own}}} { // a certificate is possible and not needed
			conn := connectService(t, member.GRPC, servers, c.present...)
			letIn(t, conn, methods, may)
			_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
			require.NoError(t, err)
		}
	}
	for _, name := range knownMethods() {
		require.True(t, tried[name], "%s is served by no service, or not by reflection", name)
	}
}

// foreign is a token of the right form that another cluster has issued.
const foreign = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL290aGVyIiwiYXVkIjpbImhvbGRmYXN0Il19.c2lnbmVk"

func newSecuredSite(t *testing.T, own certtest.Pair, callers *certtest.Authority) *site.Site {
	t.Helper()
	args := map[string][]string{}
	for _, service := range fleet.Services {
		args[service] = []string{
			"--auth=kubernetes", "--auth-audience=" + audience, "--tls-cert-file=" + own.CertFile, "--tls-key-file=" + own.KeyFile, "--tls-client-ca-file=" + callers.CAFile,
		}
	}
	return site.Start(t, site.Config{Args: args})
}

func connectService(t *testing.T, address string, servers *certtest.Authority, present ...certtest.Pair) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(servers.Client(t, present...))))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// callMethod calls a method with an empty request.
func callMethod(t *testing.T, conn *grpc.ClientConn, m rpcMethod, token string) codes.Code {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	if !m.streams {
		return status.Code(conn.Invoke(ctx, m.name, &emptypb.Empty{}, &emptypb.Empty{}))
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, m.name)
	if err != nil {
		return status.Code(err)
	}
	if err := errors.Join(stream.SendMsg(&emptypb.Empty{}), stream.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return status.Code(err)
	}
	return status.Code(stream.RecvMsg(&emptypb.Empty{}))
}

// letIn waits until the roles have been seen by the API server's authorizer, and calls each method.
func letIn(t *testing.T, conn *grpc.ClientConn, methods []rpcMethod, token string) {
	t.Helper()
	for _, m := range methods {
		if m.streams {
			continue // one that goes on may send nothing for an unlimited time
		}
		require.Eventually(t, func() bool {
			return !slices.Contains([]codes.Code{codes.Unauthenticated, codes.PermissionDenied, codes.Unavailable}, callMethod(t, conn, m, token))
		}, time.Minute, 100*time.Millisecond, m.name)
	}
}

// reflectedMethods returns the methods of a server, without a token, but for health and reflection.
func reflectedMethods(t *testing.T, conn *grpc.ClientConn) (all []rpcMethod) {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	ask := func(request *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		require.NoError(t, stream.Send(request))
		answer, err := stream.Recv()
		require.NoError(t, err)
		return answer
	}
	services := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService()
	for _, service := range services {
		if strings.HasPrefix(service.GetName(), "grpc.health.") || strings.HasPrefix(service.GetName(), "grpc.reflection.") {
			continue
		}
		files := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()}})
		for _, raw := range files.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := &descriptorpb.FileDescriptorProto{}
			require.NoError(t, proto.Unmarshal(raw, file))
			for _, s := range file.GetService() {
				if file.GetPackage()+"."+s.GetName() != service.GetName() {
					continue
				}
				for _, m := range s.GetMethod() {
					all = append(all, rpcMethod{name: "/" + service.GetName() + "/" + m.GetName(), streams: m.GetServerStreaming()})
				}
			}
		}
	}
	require.NoError(t, stream.CloseSend())
	return all
}

// knownMethods are the methods of the contracts, without those of plugins, which are no callers' business.
func knownMethods() (names []string) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if name := string(file.Package()); strings.HasPrefix(name, "holdfast.") && !strings.HasPrefix(name, "holdfast.plugin.") {
			for i := range file.Services().Len() {
				service := file.Services().Get(i)
				for j := range service.Methods().Len() {
					names = append(names, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
				}
			}
		}
		return true
	})
	return names
}
