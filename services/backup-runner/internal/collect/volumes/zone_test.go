package volumes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-io/holdfast/services/backup-runner/internal/collect/volumes"
)

func TestZone(t *testing.T) {
	in := func(key string, zones ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: zones}
	}
	for name, tt := range map[string]struct {
		labels   map[string]string
		affinity []corev1.NodeSelectorRequirement
		want     string
	}{
		"nothing":           {},
		"label":             {labels: map[string]string{"topology.kubernetes.io/zone": "z1", "failure-domain.beta.kubernetes.io/zone": "z2"}, want: "z1"},
		"old label":         {labels: map[string]string{"failure-domain.beta.kubernetes.io/zone": "z2"}, want: "z2"},
		"label first":       {labels: map[string]string{"topology.kubernetes.io/zone": "z1"}, affinity: []corev1.NodeSelectorRequirement{in("topology.kubernetes.io/zone", "z3")}, want: "z1"},
		"EBS":               {affinity: []corev1.NodeSelectorRequirement{in("kubernetes.io/os", "linux"), in("topology.ebs.csi.aws.com/zone", "z4")}, want: "z4"},
		"Azure":             {affinity: []corev1.NodeSelectorRequirement{in("topology.disk.csi.azure.com/zone", "west-1")}, want: "west-1"},
		"several of GKE":    {affinity: []corev1.NodeSelectorRequirement{in("topology.gke.io/zone", "a", "b"), in("topology.gke.io/zone", "b")}, want: "a__b"},
		"generic, the last": {affinity: []corev1.NodeSelectorRequirement{in("topology.kubernetes.io/zone", "z5", "z6"), in("topology.cinder.csi.openstack.org/zone", "nova")}, want: "nova"},
		"another operator":  {affinity: []corev1.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"z7"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{}
			pv.Labels = tt.labels
			if tt.affinity != nil {
				pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: tt.affinity}}}}
			}
			require.Equal(t, tt.want, volumes.Zone(pv))
		})
	}
}
