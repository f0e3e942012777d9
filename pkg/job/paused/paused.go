// Package paused is the mark on a Restore that created objects paused, or is about to, and has not
// resumed all of them. It names the location with the records that resume each object, so that
// these are found without the Backup.
//
// The mark is written before the first such object is created, and removed with the terminal phase
// or later. It holds the UID of its object, for annotations are copied.
package paused

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Remark is part of the failureReason of a Restore that ends with the mark, where the names of the
// objects are not known.
const Remark = "objects that it created may still be paused"

type pausedMark struct {
	UID      types.UID `json:"uid"`
	Location string    `json:"location"`
}

// PausedLocation returns the location that the mark of an object names; "" without a mark that is its own and
// readable.
func PausedLocation(obj metav1.Object) (location string) {
	var m pausedMark
	text, ok := obj.GetAnnotations()[holdfast.AnnotationPaused]
	if !ok || json.Unmarshal([]byte(text), &m) != nil || m.UID != obj.GetUID() {
		return ""
	}
	return m.Location
}

// SetPaused marks an object.
func SetPaused(obj metav1.Object, location string) error {
	text, err := json.Marshal(pausedMark{UID: obj.GetUID(), Location: location})
	if err != nil {
		return fmt.Errorf("annotation %s: %w", holdfast.AnnotationPaused, err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[holdfast.AnnotationPaused] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

// ClearPaused removes the mark.
func ClearPaused(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	delete(annotations, holdfast.AnnotationPaused)
	obj.SetAnnotations(annotations)
}
