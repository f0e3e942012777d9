package surface

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// kubeObject is a Backup as kubectl prints it. Its spec and status are kept as they are, to detect
// unexpected fields.
type kubeObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec   map[string]any `json:"spec"`
	Status map[string]any `json:"status"`
}

// statusFields are those of Velero 1.18.
var statusFields = []string{
	"version", "formatVersion", "expiration", "phase", "queuePosition", "validationErrors", "startTimestamp", "completionTimestamp",
	"volumeSnapshotsAttempted", "volumeSnapshotsCompleted", "failureReason", "warnings", "errors", "progress", "csiVolumeSnapshotsAttempted",
	"csiVolumeSnapshotsCompleted", "backupItemOperationsAttempted", "backupItemOperationsCompleted", "backupItemOperationsFailed", "hookStatus",
}

// backupsByKubectl creates one good and one bad Backup with kubectl and reads all of them back as
// YAML.
func (b *bed) backupsByKubectl(t *testing.T) {
	b.runKubectl(t, `
apiVersion: velero.io/v1
kind: Backup
metadata: {name: by-kubectl, namespace: velero, labels: {team: tea}, annotations: {example.com/why: test}}
spec: {includedNamespaces: [shop]}
---
apiVersion: velero.io/v1
kind: Backup
metadata: {name: nowhere, namespace: velero}
spec: {storageLocation: absent, ttl: 1h}
`, "create", "-f", "-")
	b.awaitPhase(t, "backups", "by-kubectl", "Completed")
	b.awaitPhase(t, "backups", "nowhere", "FailedValidation")

	var list struct {
		Items []kubeObject `json:"items"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(b.runKubectl(t, "", "get", "backups.velero.io", "-n", "velero", "-o", "yaml")), &list))
	all := map[string]kubeObject{}
	for _, o := range list.Items {
		require.Equal(t, "velero.io/v1", o.APIVersion)
		require.Equal(t, "Backup", o.Kind)
		for field := range o.Status {
			require.Contains(t, statusFields, field)
		}
		all[o.Metadata.Name] = o
	}
	require.Len(t, all, 3)
	b.requireCompleted(t, all["by-kubectl"], 720*time.Hour)
	b.requireCompleted(t, all["by-rpc"], 48*time.Hour)
	b.refusedBackup(t, all["nowhere"])
	require.Equal(t, "test", all["by-kubectl"].Metadata.Annotations["example.com/why"])
}

// requireCompleted requires everything Velero writes to a good backup.
func (b *bed) requireCompleted(t *testing.T, o kubeObject, ttl time.Duration) {
	t.Helper()
	require.Equal(t, "Completed", o.Status["phase"])
	require.EqualValues(t, 1, o.Status["version"])
	require.Equal(t, "1.2.0", o.Status["formatVersion"])
	progress := o.Status["progress"].(map[string]any)
	require.GreaterOrEqual(t, progress["totalItems"], float64(3), "namespace, ConfigMap and claim, and what controllers added")
	require.Equal(t, progress["totalItems"], progress["itemsBackedUp"])
	require.EqualValues(t, 1, o.Status["warnings"], "the claim's data was not taken")
	require.Contains(t, o.Status, "hookStatus")
	for _, absent := range []string{"errors", "queuePosition", "validationErrors", "failureReason", "volumeSnapshotsAttempted", "backupItemOperationsAttempted"} {
		require.NotContains(t, o.Status, absent, "zero is left out")
	}
	began, ended, expires := parseStamp(t, o, "startTimestamp"), parseStamp(t, o, "completionTimestamp"), parseStamp(t, o, "expiration")
	require.False(t, ended.Before(began))
	require.WithinDuration(t, began.Add(ttl), expires, time.Minute, "the time to live counts from admission")

	require.Equal(t, "default", o.Metadata.Labels["velero.io/storage-location"])
	require.Equal(t, "tea", o.Metadata.Labels["team"])
	var version struct{ GitVersion, Major, Minor string }
	require.NoError(t, json.Unmarshal([]byte(b.runKubectl(t, "", "get", "--raw", "/version")), &version))
	require.Equal(t, version.GitVersion, o.Metadata.Annotations["velero.io/source-cluster-k8s-gitversion"])
	require.Equal(t, version.Major, o.Metadata.Annotations["velero.io/source-cluster-k8s-major-version"])
	require.Equal(t, version.Minor, o.Metadata.Annotations["velero.io/source-cluster-k8s-minor-version"])
	require.Equal(t, "10m0s", o.Metadata.Annotations["velero.io/resource-timeout"])
	require.Subset(t, o.Spec, map[string]any{
		"ttl": ttl.String(), "storageLocation": "default", "includedNamespaces": []any{"shop"}, "csiSnapshotTimeout": "10m0s", "itemOperationTimeout": "4h0m0s",
		"defaultVolumesToFsBackup": false, "snapshotMoveData": false, "volumeGroupSnapshotLabelKey": "velero.io/volume-group",
		"excludedClusterScopedResources":   []any{"volumesnapshotcontents.snapshot.storage.k8s.io"},
		"excludedNamespaceScopedResources": []any{"volumesnapshots.snapshot.storage.k8s.io"},
	}, "defaults are written back")
}

// refusedBackup requires the reasons, an expiration, and no sign that work began.
func (b *bed) refusedBackup(t *testing.T, o kubeObject) {
	t.Helper()
	reasons, ok := o.Status["validationErrors"].([]any)
	require.True(t, ok, "a list")
	require.Len(t, reasons, 1)
	require.Contains(t, reasons[0], `"absent"`)
	for _, absent := range []string{"startTimestamp", "completionTimestamp", "progress", "queuePosition"} {
		require.NotContains(t, o.Status, absent)
	}
	require.WithinDuration(t, time.Now().Add(time.Hour), parseStamp(t, o, "expiration"), 2*time.Minute)
}

// parseStamp reads a time in the one form Kubernetes writes: UTC, whole seconds.
func parseStamp(t *testing.T, o kubeObject, field string) time.Time {
	t.Helper()
	text, ok := o.Status[field].(string)
	require.True(t, ok, "%s of %s is %v", field, o.Metadata.Name, o.Status[field])
	at, err := time.Parse("2006-01-02T15:04:05Z", text)
	require.NoError(t, err)
	return at
}
