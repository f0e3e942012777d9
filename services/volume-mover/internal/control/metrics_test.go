package control_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/pkg/apis/velero/v2alpha1"
	"github.com/holdfast-io/holdfast/pkg/extension/csisnapshot/csitest"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/outcome"
)

// TestMovedVolumesAreCounted under Velero's names, by the node of their movers.
func TestMovedVolumesAreCounted(t *testing.T) {
	for phase, name := range map[outcome.Phase]string{outcome.Completed: "success", outcome.Failed: "failure"} {
		u := newUploadBed(t, csitest.Behaviour{})
		u.settle()
		pod := u.mover("b-1")
		u.update(pod, func() { pod.Spec.NodeName = "node-7" })
		u.run("b-1")
		u.settle()
		u.end("b-1", outcome.Result{Phase: phase, SnapshotID: "s-1", Message: "because"})
		u.settle()
		u.requireCounted("podVolume_data_upload_"+name+"_total", "node-7")
	}
	d := &v2alpha1.DataDownload{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: "r-1", UID: "r-1-uid"}, Spec: v2alpha1.DataDownloadSpec{Cancel: true}}
	b := newBed(t, d)
	b.step(d)
	b.requireCounted("podVolume_data_download_cancel_total", "")
}

// requireCounted checks that one end was counted under one of Velero's names.
func (b *bed) requireCounted(name, node string) {
	b.t.Helper()
	all, err := b.registry.Gather()
	require.NoError(b.t, err)
	counted := map[string]float64{}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if strings.HasPrefix(family.GetName(), "podVolume_") {
				counted[family.GetName()+" "+m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(b.t, map[string]float64{name + " " + node: 1}, counted)
}
