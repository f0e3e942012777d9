package object

import (
	"fmt"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// Rival returns the object of the restore that has the name of this one in the cluster, because
// their namespaces are mapped to one; false when the name is free for it.
func (n *Names) Rival(v int32) (int32, bool) {
	for before, ok := n.plan.Load().RivalBefore(v); ok; before, ok = n.plan.Load().RivalBefore(before) {
		switch n.recorder.Action(before) {
		case apply.Created, apply.Updated, apply.Skipped:
			return before, true
		}
	}
	return 0, false
}

// Collision is the failure of an object whose name another one has, of other content.
func (n *Names) Collision(v, rival int32) error {
	return fmt.Errorf("%s and %s of the backup are both mapped to namespace %q: the first is kept, this one is not restored",
		n.storedName(rival), n.storedName(v), n.plan.Load().Target(v))
}

// storedName names an object as in the backup.
func (n *Names) storedName(v int32) string {
	return fmt.Sprintf("%s %s/%s", n.plan.Load().Kind(v), n.plan.Load().Source(v), n.plan.Load().Name(v))
}
