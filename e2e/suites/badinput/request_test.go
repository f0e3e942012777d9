package badinput

import (
	"path/filepath"
	"strings"
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

func selectorFor(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func refusedBackups() []refusedRequest[velerov1.BackupSpec] {
	type spec = velerov1.BackupSpec
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near", Values: []string{"x"}}}}
	return []refusedRequest[spec]{
		{"unknown-location", spec{StorageLocation: "nowhere"}, []string{"spec.storageLocation", `"nowhere"`}},
		{"unavailable-location", spec{StorageLocation: "no-bucket"}, []string{"spec.storageLocation", `"no-bucket"`, "unavailable"}},
		{"read-only-location", spec{StorageLocation: "read-only"}, []string{"spec.storageLocation", `"read-only"`}},
		{"selector-operator", spec{LabelSelector: near}, []string{"spec.labelSelector", "Near"}},
		{"selector-value", spec{LabelSelector: selectorFor("app", "not a value!")}, []string{"spec.labelSelector", "not a value!"}},
		{"or-selector", spec{OrLabelSelectors: []*metav1.LabelSelector{selectorFor("a", "b"), near}}, []string{"spec.orLabelSelectors[1]", "Near"}},
		{"both-selectors", spec{LabelSelector: selectorFor("a", "b"), OrLabelSelectors: []*metav1.LabelSelector{selectorFor("c", "d")}},
			[]string{"labelSelector", "orLabelSelectors"}},
		{"both-styles", spec{IncludedResources: []string{"pods"}, IncludedNamespaceScopedResources: []string{"pods"}},
			[]string{"includedResources", "includedNamespaceScopedResources"}},
		{"included-and-excluded", spec{IncludedNamespaces: []string{"one", "two"}, ExcludedNamespaces: []string{"two"}},
			[]string{"Invalid included/excluded namespace lists: ", `"two"`}},
		{"resource-conflict", spec{IncludedResources: []string{"pods"}, ExcludedResources: []string{"pods"}},
			[]string{"Invalid included/excluded resource lists: ", `"pods"`}},
		{"star-and-more", spec{IncludedResources: []string{"*", "pods"}}, []string{"Invalid included/excluded resource lists: "}},
		{"bad-pattern", spec{IncludedNamespaces: []string{"team-**"}}, []string{"Invalid included/excluded namespace lists: ", `"team-**"`}},
		{"hooks", spec{Hooks: velerov1.BackupHooks{Resources: []velerov1.BackupResourceHookSpec{{Name: "freeze", IncludedNamespaces: []string{"team-**"}}}}},
			[]string{"spec.hooks.resources[0].includedNamespaces", `"team-**"`}},
		{"resource-policy", spec{ResourcePolicy: &corev1.TypedLocalObjectReference{Kind: "configmap", Name: "policy"}}, []string{"spec.resourcePolicy"}},
		{"ordered-resources", spec{OrderedResources: map[string]string{"pods": "a/b"}}, []string{"spec.orderedResources"}},
		{"snapshot-volumes", spec{SnapshotVolumes: ptr.To(true)}, []string{"spec.snapshotVolumes"}},
		{"fs-backup", spec{DefaultVolumesToFsBackup: ptr.To(true)}, []string{"spec.defaultVolumesToFsBackup"}},
		{"move-data", spec{SnapshotMoveData: ptr.To(true)}, []string{"spec.snapshotMoveData"}},
		{"snapshot-locations", spec{VolumeSnapshotLocations: []string{"aws"}}, []string{"spec.volumeSnapshotLocations"}},
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
			require.NoDirExists(t, filepath.Join(b.bucket.path, "backups", backup.Name))
		})
	}
}

func refusedRestores() []refusedRequest[velerov1.RestoreSpec] {
	type spec = velerov1.RestoreSpec
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near", Values: []string{"x"}}}}
	return []refusedRequest[spec]{
		{"both-sources", spec{BackupName: "intact", ScheduleName: "daily"}, []string{"spec.backupName", "spec.scheduleName"}},
		{"no-source", spec{}, []string{"spec.backupName", "spec.scheduleName"}},
		{"unknown-backup", spec{BackupName: "nothing"}, []string{"spec.backupName", `"nothing"`}},
		{"unknown-schedule", spec{ScheduleName: "never"}, []string{"spec.scheduleName", `"never"`}},
		{"non-restorable", spec{BackupName: "intact", IncludedResources: []string{"nodes"}}, []string{"nodes", "non-restorable"}},
		{"resource-modifier", spec{BackupName: "intact", ResourceModifier: &corev1.TypedLocalObjectReference{Kind: "configmap", Name: "m"}},
			[]string{"spec.resourceModifier"}},
		{"restore-status", spec{BackupName: "intact", RestoreStatus: &velerov1.RestoreStatusSpec{IncludedResources: []string{"pods"}}},
			[]string{"spec.restoreStatus"}},
		{"hooks", spec{BackupName: "intact", Hooks: velerov1.RestoreHooks{Resources: []velerov1.RestoreResourceHookSpec{{Name: "h", PostHooks: []velerov1.RestoreResourceHook{
			{Exec: &velerov1.ExecRestoreHook{Command: []string{"x"}, WaitTimeout: metav1.Duration{Duration: -1}}}}}}}}, []string{"spec.hooks.resources[0].postHooks[0].exec.waitTimeout"}},
		{"policy", spec{BackupName: "intact", ExistingResourcePolicy: "overwrite"}, []string{"spec.existingResourcePolicy", "overwrite"}},
		{"mapping", spec{BackupName: "intact", NamespaceMapping: map[string]string{"a": "Not_A_Name"}}, []string{"spec.namespaceMapping", "Not_A_Name"}},
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
			require.NoDirExists(t, filepath.Join(b.bucket.path, "restores", restore.Name))
		})
	}
}

// refuseName: a name the API server already refuses.
func (b *bed) refuseName(t *testing.T) {
	t.Parallel()
	err := b.client.Create(t.Context(), &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: server, Name: strings.Repeat("x", 254)}})
	require.ErrorContains(t, err, "metadata.name")
}
