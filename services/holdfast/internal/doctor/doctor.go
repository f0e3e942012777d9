// Package doctor checks whether Holdfast can work: rights, definitions, buckets, NATS, services,
// plugins, a Velero beside it, and the cluster. What is wrong comes with a remedy.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
	"github.com/holdfast-io/holdfast/pkg/messaging"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/telemetry"
)

// Locations opens backup storage locations, as package location does.
type Locations interface {
	// Validate reports whether the location can be used; note is empty unless its store has no
	// conditional creation.
	Validate(ctx context.Context, loc *velerov1.BackupStorageLocation) (note string, err error)
	// Open returns the location's store, which the caller closes.
	Open(ctx context.Context, loc *velerov1.BackupStorageLocation) (objectstore.Store, error)
}

// Config is what is checked and with what. Clock, Client, Discovery and Namespace are
// required.
type Config struct {
	Namespace string
	// Clock is compared with the clocks of object stores.
	Clock clock.PassiveClock
	// Client has the rights of the caller.
	Client    client.Client
	Discovery discovery.DiscoveryInterface
	// Missing returns which definitions discovery does not show, for a caller who may not read them.
	Missing func(context.Context) ([]string, error)
	// Locations opens buckets with what the caller may read.
	Locations Locations
	// NATS is how to connect; an empty URL leaves the check out.
	NATS messaging.Config
	// StreamReplicas is how many copies streams are to have; 0 means that any number will do.
	StreamReplicas int
	// Services are gRPC addresses by service, Metrics host:port of HTTP by service. Named reports
	// that the caller gave the address of a service, which therefore has to answer.
	Services, Metrics map[string]string
	Named             func(service string) bool
	// Dial returns a connection to a service, which the check closes.
	Dial func(service, address string) (*grpc.ClientConn, error)
	// Plugins is how plugins are started; an empty Dir leaves the check out.
	Plugins pluginhost.Config
	// Features are those that the services are to have, beyond what their Deployments say.
	Features []string
	// Timeout bounds each check; in services and locations it bounds each service and each location.
	Timeout time.Duration
}

// checkOf runs one check.
type checkOf func(c *examination, ctx context.Context, n *checkNotes)

// all are the checks, in their order.
var all = []struct {
	name string
	run  checkOf
	// each means that the check bounds each of its subjects and not their sum.
	each bool
}{
	{"kubernetes", (*examination).checkKubernetes, false},
	{"definitions", (*examination).checkDefinitions, false},
	{"velero", (*examination).checkVelero, false},
	{"rights", (*examination).checkRights, false},
	{"nats", (*examination).checkNATS, false},
	{"services", (*examination).checkServices, true},
	{"plugins", (*examination).checkPlugins, false},
	{"locations", (*examination).checkLocations, true},
	{"volumedata", (*examination).checkVolumeData, false},
}

// Names returns the names of the checks, in the order in which they run.
func Names() []string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.name
	}
	return names
}

// examination is one run.
type examination struct {
	Config
	// deployments are those of the chart by service; unread is why they could not be listed.
	deployments map[string]*appsv1.Deployment
	unread      error
}

// Run runs the named checks, one after the other, and returns what they found. What a check cannot
// read is among that: Run itself does not fail.
func Run(ctx context.Context, cfg Config, names []string) Report {
	e := &examination{Config: cfg}
	report := Report{Version: telemetry.Version(), Namespace: cfg.Namespace, Findings: []Finding{}}
	e.findDeployments(ctx)
	for _, check := range all {
		if !slices.Contains(names, check.name) || ctx.Err() != nil {
			continue
		}
		n := &checkNotes{check: check.name}
		func() {
			limited, cancel := context.WithTimeout(ctx, cfg.Timeout)
			defer cancel()
			if check.each {
				limited = ctx
			}
			check.run(e, limited, n)
		}()
		for i := range n.findings {
			n.findings[i].Message = telemetry.RedactURLs(n.findings[i].Message)
		}
		report.Findings = append(report.Findings, n.findings...)
	}
	return report
}

// Labels of the chart's objects.
const (
	partOf    = "app.kubernetes.io/part-of"
	component = "app.kubernetes.io/component"
	version   = "app.kubernetes.io/version"
)

// findDeployments reads the chart's Deployments. Checks that need them do with what was found.
func (e *examination) findDeployments(ctx context.Context) {
	e.deployments = map[string]*appsv1.Deployment{}
	list := &appsv1.DeploymentList{}
	e.unread = e.listObjects(ctx, list, client.InNamespace(e.Namespace), client.MatchingLabels{partOf: "holdfast"})
	for i := range list.Items {
		d := &list.Items[i]
		e.deployments[d.Labels[component]] = d
	}
}

// listObjects lists objects within Timeout.
func (e *examination) listObjects(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	return e.Client.List(ctx, into, opts...)
}

// runsElsewhere reports whether the services run, or may run, in Pods and not on this machine.
func (e *examination) runsElsewhere() bool { return len(e.deployments) > 0 || e.unread != nil }

// usesCSI reports whether a service takes or restores CSI snapshots.
func (e *examination) usesCSI() bool {
	if slices.Contains(e.Features, service.FeatureCSI) {
		return true
	}
	for _, d := range e.deployments {
		if slices.Contains(splitFlag(d, "features"), service.FeatureCSI) {
			return true
		}
	}
	return false
}

// countNoun is a number with its noun in the plural where it is not one.
func countNoun(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
