package badinput

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// refusedRequest is a spec that must not run, and what its validation error has to name.
type refusedRequest[S any] struct {
	name string
	spec S
	want []string
}

func refusedBackups() []refusedRequest[velerov1.BackupSpec] {
	type spec = velerov1.BackupSpec
	return []refusedRequest[spec]{
		{"unknown-location", spec{StorageLocation: "nowhere"}, []string{"spec.storageLocation", `"nowhere"`}},
		{"unavailable-location", spec{StorageLocation: "no-bucket"}, []string{"spec.storageLocation", `"no-bucket"`, "unavailable"}},
		{"read-only-location", spec{StorageLocation: "read-only"}, []string{"spec.storageLocation", `"read-only"`}},
		{"both-styles", spec{IncludedResources: []string{"pods"}, IncludedNamespaceScopedResources: []string{"pods"}},
			[]string{"includedResources", "includedNamespaceScopedResources"}},
		{"hooks", spec{Hooks: velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{Name: "freeze", IncludedNamespaces: []string{"team-**"}}}}},
			[]string{"spec.hooks.resources[0].includedNamespaces", `"team-**"`}},
		{"resource-policy", spec{ResourcePolicy: &corev1.TypedLocalObjectReference{Kind: "configmap", Name: "policy"}}, []string{"spec.resourcePolicy"}},
		{"move-data", spec{SnapshotMoveData: ptr.To(true)}, []string{"spec.snapshotMoveData", "EnableCSI"}},
	}
}

// refuseBackups requires exactly one problem of each, and nothing in the bucket.
func (b *bed) refuseBackups(t *testing.T) {
	t.Parallel()
	for _, r := range refusedBackups() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			backup := b.runBackup(t, "refused-"+r.name, r.spec)
			require.Equal(t, velerov1.BackupPhaseFailedValidation, backup.Status.Phase, backup.Status.FailureReason)
			require.Len(t, backup.Status.ValidationErrors, 1, "%q", backup.Status.ValidationErrors)
			for _, word := range r.want {
				require.Contains(t, backup.Status.ValidationErrors[0], word)
			}
			require.Nil(t, backup.Status.StartTimestamp)
			require.NoDirExists(t, filepath.Join(b.bucketDir(), "backups", backup.Name))
		})
	}
}

func refusedRestores() []refusedRequest[velerov1.RestoreSpec] {
	type spec = velerov1.RestoreSpec
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near", Values: []string{"x"}}}}
	return []refusedRequest[spec]{
		{"unknown-backup", spec{BackupName: "nothing"}, []string{"spec.backupName", `"nothing"`}},
		{"resource-modifier", spec{BackupName: "intact", ResourceModifier: &corev1.TypedLocalObjectReference{Kind: "configmap", Name: "m"}},
			[]string{"spec.resourceModifier"}},
		{"policy", spec{BackupName: "intact", ExistingResourcePolicy: "overwrite"}, []string{"spec.existingResourcePolicy", "overwrite"}},
		{"selector", spec{BackupName: "intact", LabelSelector: near}, []string{"spec.labelSelector", "Near"}},
	}
}

func (b *bed) refuseRestores(t *testing.T) {
	t.Parallel()
	for _, r := range refusedRestores() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			restore := b.runRestore(t, "refused-"+r.name, r.spec)
			require.Equal(t, velerov1.RestorePhaseFailedValidation, restore.Status.Phase, restore.Status.FailureReason)
			require.Len(t, restore.Status.ValidationErrors, 1, "%q", restore.Status.ValidationErrors)
			for _, word := range r.want {
				require.Contains(t, restore.Status.ValidationErrors[0], word)
			}
			require.NoDirExists(t, filepath.Join(b.bucketDir(), "restores", restore.Name))
		})
	}
}
