package mark

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// PostHooks is the value of the annotation holdfast.io/post-hooks: the mark on a Backup whose records do
// not tell for certain which Pods are between their hooks.
type PostHooks struct {
	UID types.UID `json:"uid"` // of the object; Set sets it
	// Early: post hooks of Pods that the records have between their hooks ran, or were about to,
	// before what they follow. It is written before they run, while the backup continues.
	Early bool `json:"early,omitempty"`
	// Owed: the backup ended, and the post hooks of Pods that the records have between their hooks
	// may not have run. It is written with the terminal phase, and removed when they have.
	Owed bool `json:"owed,omitempty"`
}

func (m PostHooks) owner() types.UID { return m.UID }

// PostHooksOf returns the mark of an object; the zero Mark without one that is its own and readable.
func PostHooksOf(obj metav1.Object) PostHooks {
	return readMark[PostHooks](obj, holdfast.AnnotationPostHooks)
}

// SetPostHooks marks an object, in place of the mark that it has.
func SetPostHooks(obj metav1.Object, m PostHooks) error {
	m.UID = obj.GetUID()
	return setMark(obj, holdfast.AnnotationPostHooks, m)
}

// ClearPostHooks removes the mark.
func ClearPostHooks(obj metav1.Object) { clearMark(obj, holdfast.AnnotationPostHooks) }
