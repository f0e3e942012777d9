package restore_test

import (
	"fmt"
	"testing"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/extension/action"
	"github.com/holdfast-io/holdfast/pkg/kube/kubetest"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
)

// benchObjects is how many objects a restore of a benchmark has.
const benchObjects = 2000

// BenchmarkRun is a whole restore against an API server in this process, whose allocations count
// too: of objects that depend on nothing, of pairs of an owner and what it owns, and of objects
// that an action changes.
func BenchmarkRun(b *testing.B) {
	labelled := &fake{name: "label.io/x", execute: func(o, _ *action.Object) (action.RestoreResult, error) {
		content, err := o.Content()
		if err != nil {
			return action.RestoreResult{}, err
		}
		content["data"] = object{"k": "changed"}
		return action.RestoreResult{Object: action.FromContent(content)}, nil
	}}
	for name, c := range map[string]struct {
		owned   bool
		actions []*fake
	}{
		"plain": {}, "owned": {owned: true}, "action": {actions: []*fake{labelled}},
	} {
		b.Run(name, func(b *testing.B) {
			source := benchBackup(c.owned)
			b.ReportAllocs()
			requests := 0
			for b.Loop() {
				b.StopTimer()
				s := kubetest.Start(b)
				var change []func(*restore.Config)
				if c.actions != nil {
					change = append(change, withActions(b, c.actions...))
				}
				b.StartTimer()
				runRestore(b, s, source, velerov1.RestoreSpec{}, change...)
				requests += len(s.Requests(""))
			}
			b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
		})
	}
}

// benchBackup has ConfigMaps in a few namespaces, every second of them the owner of the one before.
func benchBackup(owned bool) *backup {
	source := &backup{}
	for i := range benchObjects {
		namespace, name := fmt.Sprintf("n%d", i%8/2), fmt.Sprintf("c%05d", i)
		var owners []object
		if owned && i%2 == 0 {
			owners = []object{ownerBy("v1", "ConfigMap", fmt.Sprintf("c%05d", i+1), true)}
		}
		source.addObject("configmaps", "v1", "ConfigMap", namespace, name, object{"data": object{"k": name}}, owners...)
	}
	return source
}
