package crds_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/crds"
)

func backupDefinition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := crds.All()
	require.NoError(t, err)
	i := slices.IndexFunc(all, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Name == "backups.velero.io" })
	return all[i]
}

func TestLacksNamesVersionsFieldsAndValues(t *testing.T) {
	want := backupDefinition(t)
	require.Empty(t, crds.MissingPaths(want.DeepCopy(), want))

	have := want.DeepCopy()
	root := have.Spec.Versions[0].Schema.OpenAPIV3Schema
	delete(root.Properties["spec"].Properties, "uploaderConfig")
	hook := root.Properties["spec"].Properties["hooks"].Properties["resources"].Items.Schema
	delete(hook.Properties, "pre")
	status := root.Properties["status"].Properties
	phase := status["phase"]
	require.NotEmpty(t, phase.Enum)
	gone := phase.Enum[0]
	phase.Enum = phase.Enum[1:]
	status["phase"] = phase
	require.Equal(t, []string{"v1.spec.hooks.resources[].pre", "v1.spec.uploaderConfig", "v1.status.phase=" + string(gone.Raw)}, crds.MissingPaths(have, want))

	require.True(t, crds.Complete(have, want))
	require.Empty(t, crds.MissingPaths(have, want), "Complete adds what is lacking")

	have.Spec.Versions[0].Served = false
	require.Equal(t, []string{"v1"}, crds.MissingPaths(have, want))
}

// The API server stores unknown fields of such an object, so nothing in it is dropped.
func TestAnObjectThatKeepsUnknownFieldsLacksNone(t *testing.T) {
	want := backupDefinition(t)
	have := want.DeepCopy()
	root := have.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := root.Properties["spec"]
	delete(spec.Properties, "uploaderConfig")
	for _, keeps := range []bool{false, true} {
		spec.XPreserveUnknownFields = &keeps
		root.Properties["spec"] = spec
		require.Equal(t, keeps, len(crds.MissingPaths(have, want)) == 0)
	}
}

func TestMoreThanWantedLacksNothing(t *testing.T) {
	want := backupDefinition(t)
	have := want.DeepCopy()
	have.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["foreign"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	have.Spec.Versions[0].AdditionalPrinterColumns, have.Spec.Names.ShortNames = nil, nil
	require.Empty(t, crds.MissingPaths(have, want))
}

func TestEstablishedIsTheConditionOfThatName(t *testing.T) {
	crd := backupDefinition(t)
	require.False(t, crds.Established(crd))
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue}}
	require.False(t, crds.Established(crd))
	crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue})
	require.True(t, crds.Established(crd))
}
