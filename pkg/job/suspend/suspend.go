// Package suspend is the mark on a Backup in progress that its runner let go of, because its bucket
// is away. Until it is admitted again no process works on it.
//
// The mark holds the admission under which the backup ran: the ledger entry of that one is
// released, and only another one ends the suspension. It is written with the release of the claim,
// and holds the UID of its object, for annotations are copied.
package suspend

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Suspension is the value of the annotation holdfast.io/suspended.
type Suspension struct {
	UID types.UID `json:"uid"` // of the object; Set sets it
	// Admission is the since of the ledger entry that the backup ran under.
	Admission time.Time `json:"admission"`
	Reason    string    `json:"reason,omitempty"`
}

// maxReason bounds what is kept of a reason, in bytes.
const maxReason = 1 << 10

// SuspensionOf returns the mark of an object; false without one that is its own and readable.
func SuspensionOf(obj metav1.Object) (Suspension, bool) {
	var m Suspension
	text, ok := obj.GetAnnotations()[holdfast.AnnotationSuspended]
	if !ok || json.Unmarshal([]byte(text), &m) != nil {
		return Suspension{}, false
	}
	return m, m.UID == obj.GetUID()
}

// SetSuspended marks an object.
func SetSuspended(obj metav1.Object, m Suspension) error {
	m.UID = obj.GetUID()
	m.Reason = m.Reason[:min(len(m.Reason), maxReason)]
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("annotation %s: %w", holdfast.AnnotationSuspended, err)
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[holdfast.AnnotationSuspended] = string(text)
	obj.SetAnnotations(annotations)
	return nil
}

// ClearSuspended removes the mark.
func ClearSuspended(obj metav1.Object) {
	annotations := obj.GetAnnotations()
	delete(annotations, holdfast.AnnotationSuspended)
	obj.SetAnnotations(annotations)
}
