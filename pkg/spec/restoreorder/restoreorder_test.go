package restoreorder

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

var workflows = schema.GroupResource{Group: "argoproj.io", Resource: "workflows"}

func TestParse(t *testing.T) {
	order, again, err := Parse(nil)
	require.NoError(t, err)
	require.Equal(t, Stages, order)
	require.True(t, again.LeavesOut(workflows))
	require.False(t, again.LeavesOut(schema.GroupResource{Group: "argoproj.io", Resource: "applications"}))

	order, again, err = Parse(map[string]string{holdfast.AnnotationOrder: "velero", holdfast.AnnotationRunAgain: "taskruns.tekton.dev, workflows.argoproj.io"})
	require.NoError(t, err)
	require.Equal(t, Velero, order)
	require.False(t, again.LeavesOut(workflows))
	require.True(t, again.LeavesOut(schema.GroupResource{Group: "tekton.dev", Resource: "pipelineruns"}))

	_, again, err = Parse(map[string]string{holdfast.AnnotationRunAgain: "*"})
	require.NoError(t, err)
	for _, gr := range runs {
		require.False(t, again.LeavesOut(gr), gr)
	}
	require.True(t, again.RunsJobs())
	require.Equal(t, StartJobs, again.Running)

	_, again, err = Parse(map[string]string{holdfast.AnnotationRunAgain: "jobs.batch", holdfast.AnnotationRunningJobs: "suspend"})
	require.NoError(t, err)
	require.True(t, again.RunsJobs())
	require.True(t, again.LeavesOut(workflows))
	require.False(t, again.LeavesOut(jobs))
	require.Equal(t, SuspendJobs, again.Running)
}

func TestBadValuesNameTheirAnnotation(t *testing.T) {
	for annotation, value := range map[string]string{holdfast.AnnotationOrder: "roots", holdfast.AnnotationRunAgain: "workflows", holdfast.AnnotationRunningJobs: "stop"} {
		_, _, err := Parse(map[string]string{annotation: value})
		require.ErrorContains(t, err, "metadata.annotations["+annotation+"]")
		require.ErrorContains(t, err, value)
	}
}
