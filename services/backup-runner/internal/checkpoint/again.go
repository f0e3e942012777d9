package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

// againVersion is the format of Again; another one is not understood.
const againVersion = 1

// Again fixes what was stored again once the operations of a backup had ended. There is one per
// backup; every later holder follows it.
type Again struct {
	FormatVersion int    `json:"formatVersion"`
	Backup        string `json:"backup"`
	UID           string `json:"uid"`
	Epoch         int64  `json:"epoch"`
	// Checkpoints are the keys of the records, whose parts come after those of the composition.
	Checkpoints []string `json:"checkpoints"`
}

// FixAgain makes a what was stored again, or returns what was fixed before.
func FixAgain(ctx context.Context, store objectstore.Store, a Again) (Again, error) {
	a.FormatVersion = againVersion
	data, err := json.Marshal(a)
	if err != nil {
		return Again{}, fmt.Errorf("encode what was stored again: %w", err)
	}
	err = objectstore.CreateBytes(ctx, store, layout.PostOperation(a.Backup, a.UID), data)
	if errors.Is(err, objectstore.ErrExists) {
		return FixedAgain(ctx, store, a.Backup, a.UID)
	}
	if err != nil {
		return Again{}, fmt.Errorf("write what was stored again: %w", err)
	}
	return a, nil
}

// FixedAgain returns what FixAgain fixed; the error wraps objectstore.ErrNotFound while there is
// nothing, ErrDamaged if it is not understood.
func FixedAgain(ctx context.Context, store objectstore.Reader, backup, uid string) (Again, error) {
	var a Again
	data, err := objectstore.ReadAll(ctx, store, layout.PostOperation(backup, uid), maxCompositionBytes)
	if err != nil {
		return a, fmt.Errorf("read what was stored again: %w", err)
	}
	if err := jsonlimit.Unmarshal(data, &a, maxDecoded); err != nil {
		return a, fmt.Errorf("what was stored again of backup %s: %w: %w", backup, ErrDamaged, err)
	}
	if a.FormatVersion != againVersion {
		return a, fmt.Errorf("what was stored again of backup %s: %w: formatVersion: %d is not supported", backup, ErrDamaged, a.FormatVersion)
	}
	if a.Backup != backup || a.UID != uid {
		return a, fmt.Errorf("what was stored again of backup %s: %w: it belongs to backup %s (uid %s)", backup, ErrDamaged, a.Backup, a.UID)
	}
	return a, nil
}
