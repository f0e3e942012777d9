package mark

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/pkg/apis/holdfast"
)

// PausedRemark is part of the failureReason of a Restore that ends with the mark, where the names of the
// objects are not known.
const PausedRemark = "objects that it created may still be paused"

// locationMark names a location.
type locationMark struct {
	UID      types.UID `json:"uid"`
	Location string    `json:"location"`
}

func (m locationMark) owner() types.UID { return m.UID }

// PausedLocation returns the location that the mark of an object names; "" without a mark that is its own and
// readable.
func PausedLocation(obj metav1.Object) (location string) {
	return readMark[locationMark](obj, holdfast.AnnotationPaused).Location
}

// SetPaused marks a Restore that is about to create objects paused, before the first of them. The mark
// names the location with the records that resume each object, so that they are found without the
// Backup. It is removed with the terminal phase or later.
func SetPaused(obj metav1.Object, location string) error {
	return setMark(obj, holdfast.AnnotationPaused, locationMark{UID: obj.GetUID(), Location: location})
}

// ClearPaused removes the mark.
func ClearPaused(obj metav1.Object) { clearMark(obj, holdfast.AnnotationPaused) }

// FilesLocation returns the location that has the files and records of a Restore; "" where that of its backup
// has them.
func FilesLocation(obj metav1.Object) string {
	return readMark[locationMark](obj, holdfast.AnnotationFilesLocation).Location
}

// SetFilesLocation marks a Restore whose files and records are not with its backup, before the first record.
// The mark stays for as long as the Restore.
func SetFilesLocation(obj metav1.Object, location string) error {
	return setMark(obj, holdfast.AnnotationFilesLocation, locationMark{UID: obj.GetUID(), Location: location})
}
