package surface

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// backupByRPC submits a backup and reads it back, all with grpcurl.
func (b *bed) backupByRPC(t *testing.T) {
	const submit = "holdfast.queue.v1.QueueService/SubmitBackup"
	request := `{"name":"by-rpc","labels":{"team":"tea"},"spec":{"includedNamespaces":["shop"],"ttl":"48h0m0s"}}`
	answer := b.callMethod(t, "queue-scheduler", submit, request)
	require.Equal(t, "velero", answer["namespace"])
	require.NotEmpty(t, answer["uid"])
	s := b.requireRefused(t, "queue-scheduler", submit, request)
	require.Equal(t, alreadyExists, s.Code)
	require.Equal(t, "ALREADY_EXISTS", s.machineReason())
	b.awaitPhase(t, "backups", "by-rpc", "Completed")

	progress := b.readProgress(t, "backup-runner", "holdfast.backup.v1.BackupService/GetProgress", "by-rpc")
	require.Equal(t, answer["uid"], progress["uid"])
	require.NotEmpty(t, progress["itemsBackedUp"])
	require.Equal(t, progress["totalItems"], progress["itemsBackedUp"])
	require.NotEmpty(t, progress["startTime"])
	require.NotEmpty(t, progress["completionTime"])
	b.testItems(t, progress["itemsBackedUp"])
}

// readProgress reads how far a finished job is: it must be Completed.
func (b *bed) readProgress(t *testing.T, service, method, name string) map[string]any {
	t.Helper()
	answer, ok := b.callMethod(t, service, method, `{"name":"`+name+`"}`)["progress"].(map[string]any)
	require.True(t, ok)
	require.Equal(t, name, answer["name"])
	require.Equal(t, "Completed", answer["phase"])
	return answer
}

// testItems lists the backup by pages of two and reads one object out of it.
func (b *bed) testItems(t *testing.T, total any) {
	t.Helper()
	whole := b.callMethod(t, "manifest-indexer", "holdfast.manifest.v1.ManifestService/GetManifest", `{"backup":"by-rpc"}`)
	require.Equal(t, total, whole["items"], "the manifest holds what the progress counts")
	var names []string
	for token := ""; ; {
		page := b.callMethod(t, "manifest-indexer", "holdfast.manifest.v1.ManifestService/ListItems", `{"backup":"by-rpc","pageSize":2,"pageToken":"`+token+`"}`)
		for _, item := range page["items"].([]any) {
			names = append(names, item.(map[string]any)["kind"].(string)+" "+item.(map[string]any)["name"].(string))
		}
		if token, _ = page["nextPageToken"].(string); token == "" {
			break
		}
	}
	require.Len(t, names, int(parseNumber(t, total)))
	require.Subset(t, names, []string{"Namespace shop", "ConfigMap prices", "PersistentVolumeClaim ledger"})

	one := b.callMethod(t, "manifest-indexer", "holdfast.manifest.v1.ManifestService/GetItem",
		`{"backup":"by-rpc","key":{"kind":"ConfigMap","namespace":"shop","name":"prices"},"withBody":true}`)
	require.Equal(t, map[string]any{"app": "shop"}, one["item"].(map[string]any)["labels"])
	body, err := base64.StdEncoding.DecodeString(one["body"].(string))
	require.NoError(t, err)
	var object struct {
		Kind string
		Data map[string]string
	}
	require.NoError(t, json.Unmarshal(body, &object))
	require.Equal(t, "ConfigMap", object.Kind)
	require.Equal(t, map[string]string{"tea": "3"}, object.Data)
}

// parseNumber reads an int64 as JSON has it in Protobuf: a string.
func parseNumber(t *testing.T, value any) int64 {
	t.Helper()
	n, err := json.Number(value.(string)).Int64()
	require.NoError(t, err)
	return n
}

// restoreByRPC restores that backup beside what is there.
func (b *bed) restoreByRPC(t *testing.T) {
	answer := b.callMethod(t, "queue-scheduler", "holdfast.queue.v1.QueueService/SubmitRestore",
		`{"name":"again","spec":{"backupName":"by-rpc","includedResources":["configmaps"],"namespaceMapping":{"shop":"shop-again"}}}`)
	require.NotEmpty(t, answer["uid"])
	b.awaitPhase(t, "restores", "again", "Completed")
	progress := b.readProgress(t, "restore-runner", "holdfast.restore.v1.RestoreService/GetProgress", "again")
	require.Equal(t, answer["uid"], progress["uid"])
	require.Contains(t, b.runKubectl(t, "", "get", "restores.velero.io", "-n", "velero", "again", "-o", "jsonpath={.status}"), `"hookStatus":{}`)
	require.JSONEq(t, `{"tea":"3"}`, b.runKubectl(t, "", "get", "configmap", "-n", "shop-again", "prices", "-o", "jsonpath={.data}"))
}
