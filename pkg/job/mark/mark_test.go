package mark_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/job/mark"
)

func TestTheMarkIsThatOfItsObject(t *testing.T) {
	for annotation, kind := range map[string]struct {
		set   func(metav1.Object) error
		read  func(metav1.Object) any
		clear func(metav1.Object)
		want  any
	}{
		"holdfast.io/paused": {
			set:   func(obj metav1.Object) error { return mark.SetPaused(obj, "default") },
			read:  func(obj metav1.Object) any { return mark.PausedLocation(obj) },
			clear: mark.ClearPaused,
			want:  "default",
		},
		"holdfast.io/post-hooks": {
			set:   func(obj metav1.Object) error { return mark.SetPostHooks(obj, mark.PostHooks{Owed: true}) },
			read:  func(obj metav1.Object) any { return mark.PostHooksOf(obj) },
			clear: mark.ClearPostHooks,
			want:  mark.PostHooks{UID: "one", Owed: true},
		},
	} {
		t.Run(annotation, func(t *testing.T) {
			b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "one"}}
			require.Zero(t, kind.read(b))
			require.NoError(t, kind.set(b))
			require.Equal(t, kind.want, kind.read(b))

			copied := b.DeepCopy()
			copied.UID = "two"
			require.Zero(t, kind.read(copied), "annotations are copied with their object")

			b.Annotations["team"] = "x"
			kind.clear(b)
			require.Zero(t, kind.read(b))
			require.Equal(t, map[string]string{"team": "x"}, b.Annotations)

			b.Annotations[annotation] = "{"
			require.Zero(t, kind.read(b), "unreadable")
		})
	}
}
