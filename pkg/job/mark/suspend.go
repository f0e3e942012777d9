package mark

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// Suspension is the value of the annotation holdfast.io/suspended: the mark on a Backup in progress
// that its runner released, because its bucket is away. No process works on it until it is admitted
// again. The mark is written with the release of the claim; the ledger entry of its admission is
// released, and only another admission ends the suspension.
type Suspension struct {
	UID types.UID `json:"uid"` // of the object; Set sets it
	// Admission is the since of the ledger entry that the backup ran under.
	Admission time.Time `json:"admission"`
	// At is when the backup was suspended.
	At     time.Time `json:"at,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

func (m Suspension) owner() types.UID { return m.UID }

// maxReason bounds what is kept of a reason, in bytes.
const maxReason = 1 << 10

// SuspensionOf returns the mark of an object; false without one that is its own and readable.
func SuspensionOf(obj metav1.Object) (Suspension, bool) {
	m := readMark[Suspension](obj, holdfast.AnnotationSuspended)
	return m, m != Suspension{}
}

// SetSuspended marks an object.
func SetSuspended(obj metav1.Object, m Suspension) error {
	m.UID = obj.GetUID()
	m.Reason = m.Reason[:min(len(m.Reason), maxReason)]
	return setMark(obj, holdfast.AnnotationSuspended, m)
}

// ClearSuspended removes the mark.
func ClearSuspended(obj metav1.Object) { clearMark(obj, holdfast.AnnotationSuspended) }
