package crds

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
)

// wire is what Velero 1.18 serves, written out by hand: short names, printer columns and what is
// required below spec.
var wire = map[string]struct {
	version  string
	short    []string
	columns  []string
	required []string
}{
	"backups":                 {version: "v1"},
	"restores":                {version: "v1"},
	"downloadrequests":        {version: "v1", required: []string{"target"}},
	"serverstatusrequests":    {version: "v1", short: []string{"ssr"}},
	"volumesnapshotlocations": {version: "v1", short: []string{"vsl"}, required: []string{"provider"}},
	"schedules":               {version: "v1", columns: []string{"Status", "Schedule", "LastBackup", "Age", "Paused"}, required: []string{"schedule", "template"}},
	"backupstoragelocations":  {version: "v1", short: []string{"bsl"}, columns: []string{"Phase", "Last Validated", "Age", "Default"}, required: []string{"objectStorage", "provider"}},
	"deletebackuprequests":    {version: "v1", columns: []string{"BackupName", "Status"}, required: []string{"backupName"}},
	"backuprepositories":      {version: "v1", columns: []string{"Age", "Repository Type"}, required: []string{"backupStorageLocation", "maintenanceFrequency", "volumeNamespace"}},
	"podvolumebackups": {
		version:  "v1",
		columns:  []string{"Status", "Started", "Bytes Done", "Total Bytes", "Incremental Bytes", "Storage Location", "Age", "Node", "Uploader"},
		required: []string{"backupStorageLocation", "node", "pod", "repoIdentifier", "volume"},
	},
	"podvolumerestores": {
		version:  "v1",
		columns:  []string{"Status", "Started", "Bytes Done", "Total Bytes", "Storage Location", "Age", "Node", "Uploader Type"},
		required: []string{"backupStorageLocation", "pod", "repoIdentifier", "snapshotID", "sourceNamespace", "volume"},
	},
	"datauploads": {
		version:  "v2alpha1",
		columns:  []string{"Status", "Started", "Bytes Done", "Total Bytes", "Incremental Bytes", "Storage Location", "Age", "Node"},
		required: []string{"backupStorageLocation", "operationTimeout", "snapshotType", "sourceNamespace", "sourcePVC"},
	},
	"datadownloads": {
		version:  "v2alpha1",
		columns:  []string{"Status", "Started", "Bytes Done", "Total Bytes", "Storage Location", "Age", "Node"},
		required: []string{"backupStorageLocation", "operationTimeout", "snapshotID", "sourceNamespace", "targetVolume"},
	},
}

func TestDefinitionsMatchTheWire(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	require.Len(t, all, len(wire))
	for _, crd := range all {
		want, ok := wire[crd.Spec.Names.Plural]
		require.True(t, ok, crd.Name)
		require.Equal(t, apiextensionsv1.NamespaceScoped, crd.Spec.Scope, crd.Name)
		require.Equal(t, want.short, crd.Spec.Names.ShortNames, crd.Name)
		require.Len(t, crd.Spec.Versions, 1, crd.Name)
		v := crd.Spec.Versions[0]
		require.Equal(t, want.version, v.Name, crd.Name)
		require.True(t, v.Served && v.Storage, crd.Name)
		if v.Subresources != nil {
			require.Nil(t, v.Subresources.Status, "%s: status is written through the main resource", crd.Name)
		}
		var columns []string
		for _, c := range v.AdditionalPrinterColumns {
			columns = append(columns, c.Name)
		}
		require.Equal(t, want.columns, columns, crd.Name)
		required := v.Schema.OpenAPIV3Schema.Properties["spec"].Required
		require.ElementsMatch(t, want.required, required, crd.Name)
	}
}

// TestSchemasKnowEveryField walks the hand-written documents of the API types through the schemas:
// a field without a schema would be pruned by the server.
func TestSchemasKnowEveryField(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	files, err := filepath.Glob("../velero/*/testdata/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(all))
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal(data, &doc))
		at := slices.IndexFunc(all, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Spec.Names.Kind == doc["kind"] })
		require.GreaterOrEqual(t, at, 0, file)
		delete(doc, "metadata")
		assertKnown(t, all[at].Spec.Versions[0].Schema.OpenAPIV3Schema, doc, file)
	}
}

func assertKnown(t *testing.T, s *apiextensionsv1.JSONSchemaProps, value any, path string) {
	t.Helper()
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			if s.AdditionalProperties != nil {
				continue
			}
			property, ok := s.Properties[name]
			if assert.True(t, ok, "%s.%s has no schema", path, name) {
				assertKnown(t, &property, child, path+"."+name)
			}
		}
	case []any:
		for _, child := range v {
			assertKnown(t, s.Items.Schema, child, path+"[]")
		}
	case string:
		if len(s.Enum) > 0 {
			assert.True(t, slices.ContainsFunc(s.Enum, func(e apiextensionsv1.JSON) bool { return string(e.Raw) == `"`+v+`"` }), "%s: %q", path, v)
		}
	}
}

// newDefinitionServer is a fake API server that establishes and serves what is created.
func newDefinitionServer(t *testing.T, present ...runtime.Object) *fake.Clientset {
	t.Helper()
	client := fake.NewSimpleClientset(present...)
	all, err := All()
	require.NoError(t, err)
	lists := map[string]*metav1.APIResourceList{}
	for _, crd := range all {
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name}.String()
		if lists[gv] == nil {
			lists[gv] = &metav1.APIResourceList{GroupVersion: gv}
			client.Resources = append(client.Resources, lists[gv])
		}
		lists[gv].APIResources = append(lists[gv].APIResources, metav1.APIResource{Name: crd.Spec.Names.Plural})
	}
	client.PrependReactor("create", "customresourcedefinitions", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		require.True(t, ok)
		crd, ok := create.GetObject().(*apiextensionsv1.CustomResourceDefinition)
		require.True(t, ok)
		crd.Status.Conditions = establishedConditions()
		return false, nil, nil
	})
	return client
}

func establishedConditions() []apiextensionsv1.CustomResourceDefinitionCondition {
	return []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
}

func TestInstallCreatesWhatIsMissing(t *testing.T) {
	client := newDefinitionServer(t)
	require.NoError(t, installDefinitions(t.Context(), client))
	list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, len(wire))

	client.ClearActions()
	require.NoError(t, installDefinitions(t.Context(), client))
	for _, action := range client.Actions() {
		require.NotContains(t, []string{"create", "update", "patch", "delete"}, action.GetVerb(), "a second installation writes nothing")
	}
}

func TestInstallAddsToOlderDefinitions(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(c *apiextensionsv1.CustomResourceDefinition) bool { return c.Spec.Names.Plural == "backups" })
	old := all[at].DeepCopy()
	old.Status.Conditions = establishedConditions()
	root := old.Spec.Versions[0].Schema.OpenAPIV3Schema
	delete(root.Properties["spec"].Properties, "uploaderConfig")
	root.Properties["spec"].Properties["foreign"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	phase := root.Properties["status"].Properties["phase"]
	phase.Enum = slices.DeleteFunc(phase.Enum, func(e apiextensionsv1.JSON) bool { return string(e.Raw) == `"Queued"` })
	root.Properties["status"].Properties["phase"] = phase

	client := newDefinitionServer(t, old)
	require.NoError(t, installDefinitions(t.Context(), client))
	now, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), old.Name, metav1.GetOptions{})
	require.NoError(t, err)
	spec := now.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	require.Contains(t, spec, "uploaderConfig")
	require.Contains(t, spec, "foreign", "nothing is removed")
	enum := now.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["phase"].Enum
	require.Contains(t, enum, apiextensionsv1.JSON{Raw: []byte(`"Queued"`)})
}

func TestCompleteAddsVersionsWithoutMovingStorage(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	have := all[0].DeepCopy()
	have.Spec.Versions[0].Name = "v0"
	require.True(t, Complete(have, all[0]))
	require.Len(t, have.Spec.Versions, 2)
	require.True(t, have.Spec.Versions[0].Storage)
	require.False(t, have.Spec.Versions[1].Storage)
	require.True(t, have.Spec.Versions[1].Served)
	require.False(t, Complete(have, all[0]), "complete already")
}

func TestInstallReportsRefusedNames(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	taken := all[0].DeepCopy()
	taken.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Message: "plural name in use"},
	}
	err = installDefinitions(t.Context(), newDefinitionServer(t, taken))
	require.ErrorContains(t, err, taken.Name)
	require.ErrorContains(t, err, "plural name in use")
}

func TestInstallEndsWithItsContext(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	pending := all[0].DeepCopy() // never established
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = installDefinitions(ctx, newDefinitionServer(t, pending))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, pending.Name)
}

func TestMissingNamesKindsThatAreNotServed(t *testing.T) {
	client := newDefinitionServer(t)
	absent, err := missingDefinitions(client)
	require.NoError(t, err)
	require.Empty(t, absent)

	empty := fake.NewSimpleClientset()
	absent, err = missingDefinitions(empty)
	require.NoError(t, err)
	require.Len(t, absent, len(wire))
	require.Contains(t, absent, "backups.velero.io/v1")
	require.Contains(t, absent, "datauploads.velero.io/v2alpha1")
}
