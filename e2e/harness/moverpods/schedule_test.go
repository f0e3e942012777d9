package moverpods

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodSelectsItsNode(t *testing.T) {
	here := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{"disk": "ssd", corev1.LabelOSStable: "linux"}}}
	named := func(names ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}}}},
		}}}
	}
	onOS := func(operator corev1.NodeSelectorOperator, os string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable, Operator: operator, Values: []string{os}}}}},
		}}}
	}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"any node":      {corev1.PodSpec{}, true},
		"a label":       {corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, true},
		"another label": {corev1.PodSpec{NodeSelector: map[string]string{"disk": "tape"}}, false},
		"its name":      {corev1.PodSpec{Affinity: named("there", "here")}, true},
		"another name":  {corev1.PodSpec{Affinity: named("there")}, false},
		"its system":    {corev1.PodSpec{Affinity: onOS(corev1.NodeSelectorOpIn, "linux")}, true},
		"no such":       {corev1.PodSpec{Affinity: onOS(corev1.NodeSelectorOpNotIn, "windows")}, true},
		"another":       {corev1.PodSpec{Affinity: onOS(corev1.NodeSelectorOpNotIn, "linux")}, false},
	} {
		require.Equal(t, c.want, selectsNode(&c.spec, here), name)
	}
}
