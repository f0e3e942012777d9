package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/layout"
)

// A restore whose filter named the target of its mapping ended as Completed, without an object and without a word. The
// backup holds two ConfigMaps of namespace a.
func TestWhatARestoreNamesAndTheBackupDoesNotHold(t *testing.T) {
	const nothing = `the filters of the restore select none of the 2 objects of backup "b"`
	for name, tt := range map[string]struct {
		spec     velerov1.RestoreSpec
		invalid  []string
		warnings []string
	}{
		"all is there": {spec: velerov1.RestoreSpec{IncludedNamespaces: []string{"a", ""}, NamespaceMapping: map[string]string{"a": "x"},
			IncludedResources: []string{"ConfigMap", "*.example.org"}}},
		"the target of the mapping": {spec: velerov1.RestoreSpec{IncludedNamespaces: []string{"x"}, NamespaceMapping: map[string]string{"a": "x"}},
			invalid: []string{`spec.includedNamespaces: the backup holds no namespace "x", which is the target of "a" in spec.namespaceMapping: name "a"`, nothing}},
		"a mapping of nothing": {spec: velerov1.RestoreSpec{NamespaceMapping: map[string]string{"aa": "x"}},
			warnings: []string{`spec.namespaceMapping: the backup holds no namespace \"aa\"`}},
		"one of two namespaces": {spec: velerov1.RestoreSpec{IncludedNamespaces: []string{"a", "b"}, ExcludedNamespaces: []string{"c", "d*"}},
			warnings: []string{`spec.includedNamespaces: the backup holds no namespace \"b\"`, `spec.excludedNamespaces: the backup holds no namespace \"c\"`}},
		"one of two resources": {spec: velerov1.RestoreSpec{IncludedResources: []string{"configmaps", "secretz"}},
			warnings: []string{`spec.includedResources: \"secretz\" matches nothing: neither the cluster nor the backup has such a resource`}},
		"a served resource that the backup lacks": {spec: velerov1.RestoreSpec{IncludedResources: []string{"secrets"}}, invalid: []string{nothing}},
		"no label":     {spec: velerov1.RestoreSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "such"}}}, invalid: []string{nothing}},
		"no namespace": {spec: velerov1.RestoreSpec{IncludedNamespaces: []string{""}}, invalid: []string{nothing}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.storeTarball(t, 2)
			b.createRestore(t, true, func(r *velerov1.Restore) {
				r.Spec = tt.spec
				r.Spec.BackupName = "b"
			})
			require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"))
			r := b.getRestore(t)
			require.Equal(t, tt.invalid, r.Status.ValidationErrors)
			require.Equal(t, len(tt.warnings), r.Status.Warnings)
			require.Empty(t, r.Status.FailureReason)
			if len(tt.invalid) > 0 {
				require.Equal(t, velerov1.RestorePhaseFailedValidation, r.Status.Phase)
				require.Equal(t, []velerov1.RestorePhase{velerov1.RestorePhaseFailedValidation}, b.ended)
				require.Empty(t, b.cluster.Requests("POST "))
				require.NoError(t, b.runner.Run(t.Context(), "r", "uid-r"), "a terminal restore is left alone")
				require.Len(t, b.ended, 1)
				return
			}
			require.Equal(t, velerov1.RestorePhaseCompleted, r.Status.Phase, r.Status.ValidationErrors)
			for _, warning := range tt.warnings {
				require.Contains(t, b.readGzip(t, layout.RestoreResults("r")), warning)
			}
		})
	}
}
