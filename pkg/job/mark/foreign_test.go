package mark_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

// A server with strategy Recreate has no Pods for a moment while it restarts: its jobs are still its own.
func TestAServerThatRestartsIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		wanted      *int32
		there       int32
		want, where string
	}{
		"runs":                     {wanted: ptr.To[int32](1), there: 1, want: "velero"},
		"restarts":                 {wanted: ptr.To[int32](1), want: "velero"},
		"restarts, by the default": {want: "velero"},
		"scaled down, still there": {wanted: ptr.To[int32](0), there: 1, want: "velero"},
		"scaled down":              {wanted: ptr.To[int32](0)},
		"in another namespace":     {wanted: ptr.To[int32](1), there: 1, where: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "velero", Labels: map[string]string{velerov1.LabelComponent: "velero"}}}
			if c.where != "" {
				d.Namespace = c.where
			}
			d.Spec.Replicas, d.Status.Replicas = c.wanted, c.there
			found, err := mark.FindForeignServer(t.Context(), fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(d).Build(), "velero")
			require.NoError(t, err)
			require.Equal(t, c.want, found)
		})
	}
}
