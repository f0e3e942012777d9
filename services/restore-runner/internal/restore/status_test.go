package restore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
)

// Where a status is no subresource, the object has none for good if it is created without. What became
// of the status since is not what a backup speaks of.
func TestTheStatusOfKindsWithoutASubresource(t *testing.T) {
	s, b := kubetest.Start(t), &backup{}
	addDefinition(b) // without subresources
	s.Serve("example.org/v1", "gadgets", "Gadget", true)
	status := object{"status": object{"phase": "Ready"}}
	b.addObject("widgets.example.com", "example.com/v1", "Widget", "a", "w", status)
	b.addObject("gadgets.example.org", "example.org/v1", "Gadget", "a", "g", status)
	require.Empty(t, runRestore(t, s, b, velerov1.RestoreSpec{}).results.Errors.allMessages())
	widget, gadget := "/apis/example.com/v1/namespaces/a/widgets/w", "/apis/example.org/v1/namespaces/a/gadgets/g"
	require.Equal(t, object{"phase": "Ready"}, s.Object(widget)["status"])
	require.NotContains(t, s.Object(gadget), "status", "its controller writes it")

	for _, policy := range []velerov1.PolicyType{"", velerov1.PolicyTypeUpdate} {
		live := s.Object(widget)
		live["status"] = object{"phase": "Busy"}
		s.Put(widget, live)
		f := runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: policy})
		require.Empty(t, f.results.Warnings.allMessages())
		require.Equal(t, []string{"a/w(skipped)"}, f.list["example.com/v1/Widget"])
		require.Equal(t, object{"phase": "Busy"}, s.Object(widget)["status"])
	}
	live := s.Object(widget)
	live["spec"] = object{"size": 2}
	s.Put(widget, live)
	f := runRestore(t, s, b, velerov1.RestoreSpec{ExistingResourcePolicy: velerov1.PolicyTypeUpdate})
	require.Equal(t, []string{"a/w(updated)"}, f.list["example.com/v1/Widget"])
	require.Equal(t, object{"phase": "Busy"}, s.Object(widget)["status"])
	require.NotContains(t, s.Object(widget), "spec")
}
