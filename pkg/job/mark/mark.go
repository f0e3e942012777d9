// Package mark has what runners write on a Backup or Restore beside Velero's status: the request to
// cancel and the start of the commit, owed post hooks, paused objects, and the Event
// of its end. It recognises jobs of another server, and answers how far a job is.
//
// A mark is an annotation. It holds the UID of its object, for annotations are copied with it: a
// mark that was written for another object does not count.
package mark

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// readMark decodes the mark of an object; the zero M without one that is readable and the object's own.
func readMark[M interface{ owner() types.UID }](obj metav1.Object, annotation string) M {
	var m, none M
	text, ok := obj.GetAnnotations()[annotation]
	if !ok || json.Unmarshal([]byte(text), &m) != nil || m.owner() != obj.GetUID() {
		return none
	}
	return m
}

// setMark writes a mark, in place of the one that the object has.
func setMark(obj metav1.Object, annotation string, m any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", annotation, err)
	}
	setAnnotation(obj, annotation, string(text))
	return nil
}

func setAnnotation(obj metav1.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

func clearMark(obj metav1.Object, annotation string) {
	annotations := obj.GetAnnotations()
	delete(annotations, annotation)
	obj.SetAnnotations(annotations)
}
