// Package posthooks is the mark on a Backup whose Pods are not, for certain, between their hooks or
// behind them, as the records of its runners have it. It holds the UID of its object, for
// annotations are copied.
package posthooks

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// PostHooks is the value of the annotation holdfast.io/post-hooks.
type PostHooks struct {
	UID types.UID `json:"uid"` // of the object; Set sets it
	// Early: post hooks of Pods that the records have between their hooks ran, or were about to,
	// before what they follow. It is written before they run, while the backup continues.
	Early bool `json:"early,omitempty"`
	// Owed: the backup ended, and the post hooks of Pods that the records have between their hooks
	// may not have run. It is written with the terminal phase, and removed when they have.
	Owed bool `json:"owed,omitempty"`
}

// PostHooksOf returns the mark of an object; the zero Mark without one that is its own and readable.
func PostHooksOf(obj metav1.Object) PostHooks {
	var m PostHooks
	text, ok := obj.GetAnnotations()[holdfast.AnnotationPostHooks]
	if !ok || json.Unmarshal([]byte(text), &m) != nil || m.UID != obj.GetUID() {
		return PostHooks{}
	}
	return m
}

// SetPostHooks marks an object, in place of the mark that it has.
func SetPostHooks(obj metav1.Object, m PostHooks) error {
	m.UID = obj.GetUID()
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", holdfast.AnnotationPostHooks, err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[holdfast.AnnotationPostHooks] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

// ClearPostHooks removes the mark.
func ClearPostHooks(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	delete(annotations, holdfast.AnnotationPostHooks)
	obj.SetAnnotations(annotations)
}
