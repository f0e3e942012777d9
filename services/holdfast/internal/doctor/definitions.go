package doctor

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
)

const installDefinitions = "run `holdfast crd install`, which only adds; helm upgrade does the same unless upgradeCRDs is false"

// checkDefinitions compares the definitions with those of this program.
func (e *examination) checkDefinitions(ctx context.Context, n *checkNotes) {
	wanted, err := crds.All()
	if err != nil {
		n.addFailure("", err.Error(), "use a release of this program: its own definitions cannot be read")
		return
	}
	good := 0
	for _, want := range wanted {
		have := &apiextensionsv1.CustomResourceDefinition{}
		err := e.Client.Get(ctx, types.NamespacedName{Name: want.Name}, have)
		switch {
		case apierrors.IsForbidden(err):
			e.checkServed(ctx, n)
			return
		case apierrors.IsNotFound(err):
			n.addFailure(want.Name, "the definition is missing", installDefinitions)
		case err != nil:
			n.addFailure(want.Name, err.Error(), "make the API server answer")
		default:
			if checkDefinition(n, have, want) {
				good++
			}
		}
	}
	if good == len(wanted) {
		n.addOK("", fmt.Sprintf("all %d definitions are there, with every version and field", good))
	}
}

// checkDefinition reports whether one definition is as this program needs it.
func checkDefinition(n *checkNotes, have, want *apiextensionsv1.CustomResourceDefinition) bool {
	if have.Spec.Scope != want.Spec.Scope {
		n.addFailure(have.Name, fmt.Sprintf("its scope is %s and not %s", have.Spec.Scope, want.Spec.Scope), "delete this definition, which is not Velero's, and install it anew; its objects go with it")
		return false
	}
	for _, c := range have.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			n.addFailure(have.Name, "its names are taken: "+c.Message, "remove or rename the definition that has these names")
			return false
		}
	}
	if !crds.Established(have) {
		n.addFailure(have.Name, "the API server does not serve it (condition Established)", "see why with `kubectl describe crd "+have.Name+"`")
		return false
	}
	if absent := crds.MissingPaths(have, want); len(absent) > 0 {
		n.addFailure(have.Name, "it is older than this program and lacks "+strings.Join(absent, ", "), installDefinitions+"; until then the API server drops these fields")
		return false
	}
	return true
}

// checkServed reads discovery instead, which everyone may read and which has no fields.
func (e *examination) checkServed(ctx context.Context, n *checkNotes) {
	missing, err := e.Missing(ctx)
	switch {
	case err != nil:
		n.addFailure("", err.Error(), "make discovery work: kubectl api-resources shows the same error")
	case len(missing) > 0:
		n.addFailure("", "the cluster does not serve "+strings.Join(missing, ", "), installDefinitions)
	default:
		n.addWarning("", "every kind is served; whether every field is known was not compared, since you may not read customresourcedefinitions",
			"run this as someone who may `get` them")
	}
}
