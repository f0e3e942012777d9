package checkpoint

import (
	"context"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// postOperationVersion is the format of PostOperationParts; another one is not understood.
const postOperationVersion = 1

// maxPostOperationBytes is what the keys of 30,000 records take with the longest name of a backup.
const maxPostOperationBytes = 8 << 20

// PostOperationParts are what was stored again once the operations of a backup had ended. There is
// one document per backup; every later holder follows it.
type PostOperationParts struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Epoch         int64  `json:"epoch"`
	// Checkpoints are the keys of the records, whose parts come after those of the composition.
	Checkpoints []string `json:"checkpoints"`
}

// RecordPostOperationParts makes p what was stored again, or returns what was recorded before.
func RecordPostOperationParts(ctx context.Context, store objectstore.Store, p PostOperationParts) (PostOperationParts, error) {
	p.FormatVersion = postOperationVersion
	kind, check := postOperationOf(p.Backup, p.UID)
	return kind.Create(ctx, store, layout.PostOperation(p.Backup, p.UID), p, check)
}

// ReadPostOperationParts returns what RecordPostOperationParts recorded; the error wraps
// objectstore.ErrNotFound while there is nothing, ErrDamaged if it is not understood.
func ReadPostOperationParts(ctx context.Context, store objectstore.Reader, backup, uid string) (PostOperationParts, error) {
	kind, check := postOperationOf(backup, uid)
	return kind.Read(ctx, store, layout.PostOperation(backup, uid), check)
}

func postOperationOf(backup, uid string) (journal.DocumentKind[PostOperationParts], func(*PostOperationParts) error) {
	kind := journal.DocumentKind[PostOperationParts]{Name: "list of what was stored again of backup " + backup, MaxBytes: maxPostOperationBytes, MaxDecoded: 4 * maxPostOperationBytes}
	return kind, func(p *PostOperationParts) error {
		if p.FormatVersion != postOperationVersion {
			return unsupportedFormatError(p.FormatVersion)
		}
		return checkBelongs(backup, uid, p.Backup, p.UID)
	}
}
