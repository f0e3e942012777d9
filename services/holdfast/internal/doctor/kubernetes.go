package doctor

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"

	"github.com/holdfast-io/holdfast/pkg/service"
)

// oldest is the first version that Holdfast and its chart are made for; unstated is what a server
// built without its flags says.
const (
	oldest   = "1.30.0"
	unstated = "0.0.0"

	snapshotAPI = "snapshot.storage.k8s.io/v1"
)

// checkKubernetes checks the API server, its version and optional APIs.
func (e *examination) checkKubernetes(_ context.Context, n *checkNotes) {
	info, err := e.Discovery.ServerVersion()
	if err != nil {
		n.addFailure("", fmt.Sprintf("the API server does not answer: %v", err), "check --kubeconfig, --kubecontext and the way to the API server")
		return
	}
	serverVersion(n, info.GitVersion)
	e.checkGroups(n)
	e.checkSnapshots(n)
}

func serverVersion(n *checkNotes, text string) {
	v, err := utilversion.ParseGeneric(text)
	switch {
	case err != nil:
		n.addWarning("version", fmt.Sprintf("the API server's version cannot be read: %q", text), "make sure that it is Kubernetes "+oldest+" or later")
	case v.LessThan(utilversion.MustParseGeneric(oldest)) && v.String() != unstated:
		n.addFailure("version", "Kubernetes "+text+" is older than "+oldest, "upgrade the cluster: the chart needs "+oldest+", and nothing is tested with older versions")
	default:
		n.addOK("version", "Kubernetes "+text)
	}
}

// checkGroups finds APIs whose servers are away: a backup has an error for each.
func (e *examination) checkGroups(n *checkNotes) {
	_, _, err := e.Discovery.ServerGroupsAndResources()
	switch {
	case err == nil:
		n.addOK("discovery", "every API group answers")
	case discovery.IsGroupDiscoveryFailedError(err):
		n.addWarning("discovery", err.Error(), "start what serves these groups, or delete their APIServices (kubectl get apiservices): until then backups that include them end as PartiallyFailed")
	default:
		n.addFailure("discovery", err.Error(), "make discovery work: kubectl api-resources shows the same error")
	}
}

func (e *examination) checkSnapshots(n *checkNotes) {
	_, err := e.Discovery.ServerResourcesForGroupVersion(snapshotAPI)
	on := e.usesCSI()
	switch {
	case err == nil && on:
		n.addOK(snapshotAPI, "served, and "+service.FeatureCSI+" is on")
	case err == nil:
		n.addOK(snapshotAPI, "served; volumes are not snapshotted, since "+service.FeatureCSI+" is off")
	case !apierrors.IsNotFound(err):
		n.addWarning(snapshotAPI, err.Error(), "make the snapshot API answer, or backups of claims have errors")
	case on:
		n.addFailure(snapshotAPI, service.FeatureCSI+" is on, and the cluster does not serve the snapshot API",
			"install the definitions and the controller of kubernetes-csi/external-snapshotter, or turn "+service.FeatureCSI+" off")
	default:
		n.addOK(snapshotAPI, "not served, and not needed: "+service.FeatureCSI+" is off")
	}
}
