package checkpoint

import (
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
)

// Errors about the documents of a backup that are created once.
var (
	// ErrDamaged means that one exists and cannot be understood.
	ErrDamaged = journal.ErrDocumentDamaged
	// ErrTooLarge means that one was not written, since no reader would take it.
	ErrTooLarge = journal.ErrDocumentTooLarge
)

func unsupportedFormatError(format int) error {
	return fmt.Errorf("formatVersion: %d is not supported", format)
}

// checkBelongs refuses a document of another backup.
func checkBelongs(backup, uid, ofBackup, ofUID string) error {
	if ofBackup != backup || ofUID != uid {
		return fmt.Errorf("it belongs to backup %s (uid %s)", ofBackup, ofUID)
	}
	return nil
}
