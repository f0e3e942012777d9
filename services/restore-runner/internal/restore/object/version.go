package object

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// sameSchema are built-in kinds whose objects are the same in a version that newer clusters do not serve:
// from the stored version to the one that is served.
var sameSchema = map[string]map[string]string{
	"apiservices.apiregistration.k8s.io":                             {"v1beta1": "v1"},
	"clusterrolebindings.rbac.authorization.k8s.io":                  {"v1beta1": "v1"},
	"clusterroles.rbac.authorization.k8s.io":                         {"v1beta1": "v1"},
	"controllerrevisions.apps":                                       {"v1beta1": "v1", "v1beta2": "v1"},
	"cronjobs.batch":                                                 {"v1beta1": "v1"},
	"csidrivers.storage.k8s.io":                                      {"v1beta1": "v1"},
	"daemonsets.apps":                                                {"v1beta2": "v1"},
	"deployments.apps":                                               {"v1beta1": "v1", "v1beta2": "v1"},
	"flowschemas.flowcontrol.apiserver.k8s.io":                       {"v1beta3": "v1"},
	"horizontalpodautoscalers.autoscaling":                           {"v2beta2": "v2"},
	"ingressclasses.networking.k8s.io":                               {"v1beta1": "v1"},
	"leases.coordination.k8s.io":                                     {"v1beta1": "v1"},
	"poddisruptionbudgets.policy":                                    {"v1beta1": "v1"},
	"priorityclasses.scheduling.k8s.io":                              {"v1beta1": "v1"},
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io":       {"v1beta3": "v1"},
	"replicasets.apps":                                               {"v1beta2": "v1"},
	"rolebindings.rbac.authorization.k8s.io":                         {"v1beta1": "v1"},
	"roles.rbac.authorization.k8s.io":                                {"v1beta1": "v1"},
	"runtimeclasses.node.k8s.io":                                     {"v1beta1": "v1"},
	"statefulsets.apps":                                              {"v1beta1": "v1", "v1beta2": "v1"},
	"storageclasses.storage.k8s.io":                                  {"v1beta1": "v1"},
	"validatingadmissionpolicies.admissionregistration.k8s.io":       {"v1beta1": "v1"},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {"v1beta1": "v1"},
}

var errVersion = errors.New("the cluster does not serve the version")

// Versions are the versions in which objects are restored whose own is not served any more. Safe for
// concurrent use.
type Versions struct {
	Client *apply.Client

	mu    sync.Mutex
	found map[schema.GroupVersionResource]servedVersion
}

// servedVersion is what stands for a stored version, or why nothing does.
type servedVersion struct {
	version string
	err     error
}

// Served returns the version in which objects are restored that are stored in another than the one the
// cluster prefers. It asks the cluster once for each kind and version.
func (s *Versions) Served(ctx context.Context, stored schema.GroupVersionResource, preferred string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer, known := s.found[stored]; known {
		return answer.version, answer.err
	}
	version, err := s.findVersion(ctx, stored, preferred)
	if err != nil && !errors.Is(err, errVersion) {
		return "", err
	}
	if s.found == nil {
		s.found = map[schema.GroupVersionResource]servedVersion{}
	}
	s.found[stored] = servedVersion{version, err}
	return version, err
}

// Known returns the version that Served found for a stored one; without an answer that is the stored one.
func (s *Versions) Known(stored schema.GroupVersionResource) string {
	if s == nil {
		return stored.Version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := s.found[stored]; answer.version != "" {
		return answer.version
	}
	return stored.Version
}

func (s *Versions) findVersion(ctx context.Context, stored schema.GroupVersionResource, preferred string) (string, error) {
	served, err := s.Client.Serves(ctx, stored)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", stored.GroupVersion(), err)
	}
	if served {
		return stored.Version, nil
	}
	gr := stored.GroupResource()
	refuse := func(why string) error {
		return fmt.Errorf("%w %s of %s, in which it is stored, only %s, and %s", errVersion, stored.Version, gr, preferred, why)
	}
	if same, known := sameSchema[gr.String()]; known {
		if same[stored.Version] != preferred {
			return "", refuse("the two differ")
		}
		return preferred, nil
	}
	raw, err := s.Client.Get(ctx, apply.Target{GVR: definitionResource, Name: gr.String()})
	if apierrors.IsNotFound(err) {
		return "", refuse("nothing is known that converts it")
	}
	if err != nil {
		return "", fmt.Errorf("look at definition %s: %w", gr, err)
	}
	body, err := jsonlimit.UnmarshalObject(raw)
	if err != nil {
		return "", fmt.Errorf("definition %s: %w", gr, err)
	}
	if strategy := TextAt(MapAt(MapAt(body, "spec"), "conversion"), "strategy"); strategy != "" && strategy != "None" {
		return "", refuse("its definition has a converter, which converts served versions alone")
	}
	return preferred, nil
}

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// changesMeaning reports that an object of the same form means something else in its new version: a budget
// with an empty selector is for no Pod in policy/v1beta1, and for all in v1.
func changesMeaning(gr schema.GroupResource, body map[string]any) bool {
	selector, set := MapAt(body, "spec")["selector"].(map[string]any)
	return gr.String() == "poddisruptionbudgets.policy" && set && len(selector) == 0
}
