package history

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/checkpoint"
	"github.com/holdfast-io/holdfast/services/backup-runner/internal/itemset"
)

// Units are how far each list has come. It keeps about 30 bytes, and no text, of one that is done.
type Units struct {
	open map[string]Position // that were begun and are not done
	done map[itemset.Key]struct{}
}

// Position is how far a list has come.
type Position struct {
	checkpoint.Range     // the last one
	Total            int // objects in all of them
}

// NewUnits returns no lists.
func NewUnits() Units {
	return Units{open: map[string]Position{}, done: map[itemset.Key]struct{}{}}
}

func unitKey(id string) itemset.Key { return itemset.KeyOf(schema.GroupKind{}, "", id) }

// Done reports whether a unit was listed to its end.
func (u *Units) Done(id string) bool {
	_, done := u.done[unitKey(id)]
	return done
}

// At returns where a unit was left that was begun and is not done.
func (u *Units) At(id string) (Position, bool) {
	at, ok := u.open[id]
	return at, ok
}

// Cover notes how far a unit was listed.
func (u *Units) Cover(last *checkpoint.Range) {
	if last.Done {
		delete(u.open, last.Unit)
		u.done[unitKey(last.Unit)] = struct{}{}
		return
	}
	u.open[last.Unit] = Position{Range: *last, Total: u.open[last.Unit].Total + last.Items}
}
