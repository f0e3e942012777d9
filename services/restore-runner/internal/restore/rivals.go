package restore

import (
	"fmt"

	"github.com/holdfast-io/holdfast/services/restore-runner/internal/apply"
)

// rival returns the object of the restore that has the name of this one in the cluster, because
// their namespaces are mapped to one; false when the name is free for it.
func (r *run) rival(v int32) (int32, bool) {
	for before, ok := r.Plan.Rival(v); ok; before, ok = r.Plan.Rival(before) {
		switch r.Recorder.Action(before) {
		case apply.Created, apply.Updated, apply.Skipped:
			return before, true
		}
	}
	return 0, false
}

// collision is the failure of an object whose name another one has, of other content.
func (r *run) collision(v, rival int32) error {
	return fmt.Errorf("%s and %s of the backup are both mapped to namespace %q: the first is kept, this one is not restored",
		r.source(rival), r.source(v), r.Plan.Target(v))
}

// source names an object as in the backup.
func (r *run) source(v int32) string {
	return fmt.Sprintf("%s %s/%s", r.Plan.Kind(v), r.Plan.Source(v), r.Plan.Node(v).Name)
}
