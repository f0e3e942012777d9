package collect

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
	"github.com/holdfast-io/holdfast/pkg/archive/reference"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/rawlist"
)

// widgetServer serves a widget that names objects in fields which a rule of a user and the schema of its
// definition know.
func widgetServer(rules map[string]string) *kubetest.Server {
	api := newEstateServer()
	text := map[string]any{"type": "string"}
	api.Add("widgets.example.com", kubetest.Object{Namespace: "a", Name: "named", Body: map[string]any{"spec": map[string]any{
		"parts": []any{map[string]string{"config": "cm-000"}}, "secretName": "key", "nodeRef": map[string]string{"kind": "Node", "name": "n1"}}}})
	api.Add("customresourcedefinitions.apiextensions.k8s.io", kubetest.Object{Name: "widgets.example.com", Body: map[string]any{"spec": map[string]any{"versions": []any{
		map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{
			"secretName": text, "nodeRef": map[string]any{"type": "object", "properties": map[string]any{"kind": text, "name": text}}}}}}}}}}}})
	if rules != nil {
		api.Add("configmaps", kubetest.Object{Namespace: "velero", Name: reference.ConfigMap, Body: map[string]any{"data": rules}})
	}
	return api
}

// namedByWidget is what the manifest says that the widget names.
func namedByWidget(t *testing.T, s *setup) ([]manifest.Reference, stored) {
	t.Helper()
	_, got := s.runJob(t)
	return got.entries["resources/widgets.example.com/namespaces/a/named.json"].References, got
}

var (
	definedByItsDefinition = manifest.Reference{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Name: "widgets.example.com", Relation: reference.DefinedBy}
	namesANode             = manifest.Reference{Kind: "Node", Name: "n1", Relation: reference.Names}
	readsItsKey            = manifest.Reference{Kind: "Secret", Namespace: "a", Name: "key", Relation: reference.Reads}
)

// A custom resource is searched by the rules of users and by its schema, also where an action saw it.
func TestReferencesOfCustomResources(t *testing.T) {
	rules := map[string]string{"good": "{group: example.com, kind: Widget, field: 'spec.parts[].config', to: ConfigMap}", "bad": "{kind: Widget}"}
	want := []manifest.Reference{definedByItsDefinition, {Kind: "ConfigMap", Namespace: "a", Name: "cm-000", Relation: reference.Names}, namesANode, readsItsKey}
	for name, actions := range map[string][]*fakeAction{"listed": nil, "acted on": {tracingAction("a.io/x", action.Selector{IncludedResources: []string{"widgets.example.com"}})}} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t, widgetServer(rules), velerov1.BackupSpec{})
			for _, a := range actions {
				s.addActions(a)
			}
			found, got := namedByWidget(t, s)
			require.Equal(t, want, found)
			require.Equal(t, []string{" /: ConfigMap holdfast-references: data[bad]: kind and field are required"}, got.notesAt(joblog.Warning))
		})
	}
}

// What says where references are cannot be read: the backup is whole, and the manifest says less.
func TestReferencesWithoutTheirRules(t *testing.T) {
	for part, want := range map[string][]manifest.Reference{
		"configmaps": {definedByItsDefinition, namesANode, readsItsKey}, "customresourcedefinitions": {definedByItsDefinition},
	} {
		t.Run(part, func(t *testing.T) {
			s := newSetup(t, widgetServer(nil), velerov1.BackupSpec{})
			var log bytes.Buffer
			s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
			s.cfg.Lister = listerFunc(func(ctx context.Context, req rawlist.Request, sink rawlist.Sink) error {
				if req.Fields != "" && req.Resource.Resource == part {
					return &rawlist.StatusError{Code: http.StatusForbidden}
				}
				return s.lists.List(ctx, req, sink)
			})
			found, got := namedByWidget(t, s)
			require.Equal(t, want, found)
			if part == "configmaps" {
				require.Len(t, got.notesAt(joblog.Warning), 1)
				require.Contains(t, got.notesAt(joblog.Warning)[0], "ConfigMap holdfast-references: its rules do not apply: ")
				return
			}
			require.Equal(t, 1, strings.Count(log.String(), "Failed to read CustomResourceDefinition"))
			require.Contains(t, log.String(), "name=widgets.example.com")
		})
	}
}
