package paused_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/paused"
)

func TestTheMarkIsThatOfItsObject(t *testing.T) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "one"}}
	require.Empty(t, paused.PausedLocation(r))
	require.NoError(t, paused.SetPaused(r, "default"))
	require.Equal(t, "default", paused.PausedLocation(r))

	copied := r.DeepCopy()
	copied.UID = "two"
	require.Empty(t, paused.PausedLocation(copied), "annotations are copied with their object")

	r.Annotations["team"] = "x"
	paused.ClearPaused(r)
	require.Empty(t, paused.PausedLocation(r))
	require.Equal(t, map[string]string{"team": "x"}, r.Annotations)
}

func TestAnUnreadableMarkIsNone(t *testing.T) {
	r := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{UID: "one", Annotations: map[string]string{"holdfast.io/paused": "{"}}}
	require.Empty(t, paused.PausedLocation(r))
}
