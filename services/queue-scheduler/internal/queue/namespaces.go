package queue

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// maxNamespacesBytes bounds the annotation: an API server takes 256 KiB of all annotations of an object
// together.
const maxNamespacesBytes = 128 << 10

// setNamespaces notes on a job what it is admitted for. A list that is too large is left out, and
// its readers resolve it again.
func setNamespaces(obj metav1.Object, namespaces []string) error {
	if namespaces == nil {
		namespaces = []string{} // null would mean that nothing was noted
	}
	text, err := json.Marshal(namespaces)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", holdfast.AnnotationNamespaces, err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, holdfast.AnnotationNamespaces)
	if len(text) <= maxNamespacesBytes {
		annotations[holdfast.AnnotationNamespaces] = string(text)
	}
	obj.SetAnnotations(annotations)
	return nil
}

// notedNamespaces returns what setNamespaces noted; false if it noted nothing. An annotation that
// is no list of names is an error.
func notedNamespaces(obj metav1.Object) ([]string, bool, error) {
	text, ok := obj.GetAnnotations()[holdfast.AnnotationNamespaces]
	if !ok {
		return nil, false, nil
	}
	var namespaces []string
	if err := json.Unmarshal([]byte(text), &namespaces); err != nil {
		return nil, false, fmt.Errorf("annotation %s: %w", holdfast.AnnotationNamespaces, err)
	}
	return namespaces, namespaces != nil, nil
}
