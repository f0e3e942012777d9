package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-io/holdfast/pkg/service/rights"
)

// checkServices checks that each service runs, is ready, and is of one version with the others.
func (e *examination) checkServices(ctx context.Context, n *checkNotes) {
	versions := map[string][]string{}
	for _, name := range rights.Services() {
		if v := e.oneService(ctx, n, name); v != "" {
			versions[v] = append(versions[v], name)
		}
	}
	if len(versions) < 2 { //nolint:mnd // one version is what there should be
		return
	}
	var each []string
	for v, names := range versions {
		each = append(each, strings.Join(names, ", ")+" "+v)
	}
	slices.Sort(each)
	n.addWarning("versions", "services differ in version: "+strings.Join(each, "; "), "finish the upgrade: services of one release work together")
}

// oneService returns the service's version, empty where nothing states it.
func (e *examination) oneService(ctx context.Context, n *checkNotes, name string) string {
	d, address := e.deployments[name], e.Services[name]
	stated := ""
	if d != nil {
		stated = d.Labels[version]
		checkReplicas(n, name, d)
	} else if len(e.deployments) > 0 {
		n.addFailure(name, "its Deployment is missing in namespace "+e.Namespace, "helm upgrade makes it again")
	}
	if address == "" {
		return stated
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	err := e.checkHealth(ctx, name, address)
	unready := &notReadyError{}
	switch {
	case err == nil:
		if v := e.versionOf(ctx, e.Metrics[name]); v != "" {
			stated = v
		}
		n.addOK(name, strings.TrimSpace("ready at "+address+" "+stated))
	case errors.As(err, &unready):
		n.addFailure(name, fmt.Sprintf("it answers at %s and is not ready (%s)", address, unready.status), "its /readyz says what is missing: the API server, or NATS; see its log")
	case e.runsElsewhere() && !e.Named(name) && refusedConnection(err):
		n.addSkipped(name, fmt.Sprintf("its port is not forwarded to %s: %s", address, status.Convert(err).Message()), "forward it (kubectl -n "+e.Namespace+" port-forward), or say where it is: --services-address "+name+"=HOST:PORT")
	default:
		n.addFailure(name, fmt.Sprintf("no answer at %s: %s", address, status.Convert(err).Message()), "start it (`holdfast up` runs all services), or say where it is: --services-address "+name+"=HOST:PORT, with --services-ca-file for TLS")
	}
	return stated
}

// refusedConnection reports whether nothing listens at the address. grpc-go's status holds the cause
// as text alone.
func refusedConnection(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), syscall.ECONNREFUSED.Error())
}

// checkReplicas compares the ready replicas of a Deployment with those of its spec.
func checkReplicas(n *checkNotes, name string, d *appsv1.Deployment) {
	want := ptr.Deref(d.Spec.Replicas, 1)
	subject := name + " Deployment"
	switch {
	case want == 0:
		n.addFailure(subject, "it has no replicas", "give it one: what it does is not done")
	case d.Status.ReadyReplicas == 0:
		n.addFailure(subject, fmt.Sprintf("none of %s is ready", countNoun(int(want), "Pod")), fmt.Sprintf("kubectl -n %s describe deploy/%s, and the logs of its Pods, say why", d.Namespace, d.Name))
	case d.Status.ReadyReplicas < want:
		n.addWarning(subject, fmt.Sprintf("%d of %s ready", d.Status.ReadyReplicas, countNoun(int(want), "Pod")), fmt.Sprintf("kubectl -n %s describe deploy/%s, and the logs of its Pods, say why", d.Namespace, d.Name))
	default:
		n.addOK(subject, countNoun(int(want), "Pod")+" ready")
	}
}

// notReadyError is an answer other than SERVING.
type notReadyError struct{ status string }

// Error implements error.
func (e *notReadyError) Error() string { return e.status }

// checkHealth calls grpc.health.v1, which needs no token.
func (e *examination) checkHealth(ctx context.Context, name, address string) error {
	conn, err := e.Dial(name, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // Close fails only on a closed connection
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: name})
	if err != nil {
		return err
	}
	if s := answer.GetStatus(); s != healthpb.HealthCheckResponse_SERVING {
		return &notReadyError{s.String()}
	}
	return nil
}

// metricsBytes bounds what is read of the metrics of a service.
const metricsBytes = 8 << 20

var builtAs = regexp.MustCompile(`^holdfast_build_info\{.*version="([^"]*)"`)

// versionOf reads a service's metrics; empty where they do not answer.
func (e *examination) versionOf(ctx context.Context, address string) string {
	if address == "" {
		return ""
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return ""
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(io.LimitReader(response.Body, metricsBytes)); lines.Scan(); {
		if found := builtAs.FindStringSubmatch(lines.Text()); found != nil {
			return found[1]
		}
	}
	return ""
}
