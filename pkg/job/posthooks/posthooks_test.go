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
	require.Zero(t, posthooks.PostHooksOf(b))
	require.NoError(t, posthooks.SetPostHooks(b, posthooks.PostHooks{Owed: true}))
	require.Equal(t, posthooks.PostHooks{UID: "one", Owed: true}, posthooks.PostHooksOf(b))

	copied := b.DeepCopy()
	copied.UID = "two"
	require.Zero(t, posthooks.PostHooksOf(copied), "annotations are copied with their object")

	b.Annotations["team"] = "x"
	posthooks.ClearPostHooks(b)
	require.Zero(t, posthooks.PostHooksOf(b))
	require.Equal(t, map[string]string{"team": "x"}, b.Annotations)

	b.Annotations["holdfast.io/post-hooks"] = "{"
	require.Zero(t, posthooks.PostHooksOf(b), "unreadable")
}
