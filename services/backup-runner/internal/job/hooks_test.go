package job

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/pkg/kube/podexec"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
	"github.com/holdfast-io/holdfast/pkg/objectstore/memstore"
)

// database is a Pod that can be frozen and thawed.
type database struct {
	mu             sync.Mutex
	freezes, thaws int
}

func (d *database) Run(_ context.Context, cmd *podexec.Command) (podexec.Output, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cmd.Args[0] == "freeze" {
		d.freezes++
	} else {
		d.thaws++
	}
	return podexec.Output{}, nil
}

func (d *database) frozen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freezes > d.thaws
}

// A bucket that refuses while a Pod is between its hooks ends the backup on the object alone: the Pod
// is thawed before, whichever calls the bucket refuses.
func TestABucketThatRefusesLeavesNoPodFrozen(t *testing.T) {
	for name, ops := range map[string][]memstore.Op{
		"writes":   {memstore.OpCreate, memstore.OpPut},
		"anything": {memstore.OpCreate, memstore.OpPut, memstore.OpGet, memstore.OpStat, memstore.OpList},
	} {
		t.Run(name, func(t *testing.T) {
			w, db := newWorld(t), &database{}
			w.Exec = db
			w.api.Add("pods", kubetest.Object{Namespace: "a", Name: "db", Annotations: map[string]string{
				"pre.hook.backup.velero.io/command": "freeze", "post.hook.backup.velero.io/command": "thaw"},
				Body: map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main"}}}, "status": map[string]any{"phase": "Running"}}})
			refused := map[memstore.Op]bool{}
			for _, op := range ops {
				refused[op] = true
			}
			w.store.Inject(func(op memstore.Op, _ string) error {
				if refused[op] && db.frozen() {
					return objectstore.ErrAccess
				}
				return nil
			})
			b := w.admit(t, "b1")
			require.NoError(t, w.Run(t.Context(), "b1", b.UID))
			require.Equal(t, velerov1.BackupPhaseFailed, w.read(t, b).Status.Phase)
			require.Equal(t, 1, db.freezes)
			require.False(t, db.frozen())
		})
	}
}
