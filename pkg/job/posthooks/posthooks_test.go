package posthooks_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/posthooks"
)

func TestTheMarkIsThatOfItsObject(t *testing.T) {
	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "one"}}
	require.Zero(t, posthooks.MarkOf(b))
	require.NoError(t, posthooks.Set(b, posthooks.Mark{Owed: true}))
	require.Equal(t, posthooks.Mark{UID: "one", Owed: true}, posthooks.MarkOf(b))

	copied := b.DeepCopy()
	copied.UID = "two"
	require.Zero(t, posthooks.MarkOf(copied), "annotations are copied with their object")

	b.Annotations["team"] = "x"
	posthooks.Clear(b)
	require.Zero(t, posthooks.MarkOf(b))
	require.Equal(t, map[string]string{"team": "x"}, b.Annotations)

	b.Annotations["holdfast.io/post-hooks"] = "{"
	require.Zero(t, posthooks.MarkOf(b), "unreadable")
}
