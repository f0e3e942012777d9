package operations

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/e2e/harness/site"
	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// store writes an object of the bucket.
func (b *bed) store(t *testing.T, key string, data []byte) {
	t.Helper()
	_, err := b.server.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.bucket.Location, Key: &key, Body: bytes.NewReader(data)})
	require.NoError(t, err)
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// left has operations run that another server began for a job, and returns the file that it wrote of
// them: one that completes, one that fails, and one whose action is not here.
func (b *bed) left(t *testing.T, job, field, own, vendor string) string {
	t.Helper()
	b.Namespace(t, job)
	b.controller.hold(job)
	entry := func(action, item, id string) string {
		return fmt.Sprintf(`{"spec":{"%sItemAction":%q,"resourceIdentifier":{"Group":"","Resource":"pods","Namespace":%q,"Name":%q},"operationID":%q},`+
			`"status":{"phase":"InProgress","created":%q}}`, field, action, job, item, id, time.Now().UTC().Format(time.RFC3339))
	}
	entries := []string{entry("absent.example.com/x", "lost", "op-1")}
	for item, one := range map[string]struct {
		action string
		order  order
	}{"fine": {own, order{}}, "broken": {vendor, order{Fails: "the tape broke"}}} {
		w := &work{ObjectMeta: metav1.ObjectMeta{Namespace: job, Name: item}, Spec: workSpec{Backup: job, Item: item, Order: one.order}}
		require.NoError(t, b.works.Create(t.Context(), w))
		entries = append(entries, entry(one.action, item, w.id()))
	}
	return "[" + strings.Join(entries, ",") + "]"
}

// followed waits until operations of a job are asked about, and lets them run.
func (b *bed) followed(t *testing.T, job string) {
	t.Helper()
	for _, binary := range []string{ownBinary, vendorBinary} {
		require.Eventually(t, func() bool {
			pid, _ := b.calls.poll(t, binary, job)
			return pid != 0
		}, site.Patience, site.Look, "operations in %s are asked about", binary)
	}
	b.controller.release(job)
}

// inherited continues a backup that another server left waiting: operations whose plugins are here
// are followed to their ends, the other one has failed, and no action is called again.
func (b *bed) inherited(t *testing.T) {
	const name, from = "inherited", "inherited-source"
	file := b.left(t, name, "backup", ownAction, vendorAction)
	b.Backup(t, from, b.bucket, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, from).Status.Phase)

	backup := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: velerov1.BackupSpec{StorageLocation: b.bucket.Location}}
	backup.Status.Phase = velerov1.BackupPhaseDeleting // nothing looks at it before its files are there
	require.NoError(t, b.Client.Create(t.Context(), backup))
	for _, suffix := range []string{".tar.gz", "-logs.gz", "-results.gz", "-resource-list.json.gz"} {
		b.store(t, "backups/"+name+"/"+name+suffix, b.bucket.Read(t, "backups/"+from+"/"+from+suffix))
	}
	b.store(t, "backups/"+name+"/"+name+"-itemoperations.json.gz", zipped(t, file))
	var stored velerov1.Backup
	require.NoError(t, json.Unmarshal(b.bucket.Read(t, "backups/"+from+"/velero-backup.json"), &stored))
	stored.Name, stored.UID, stored.Annotations = name, backup.UID, nil
	stored.Status.Phase, stored.Status.CompletionTimestamp = velerov1.BackupPhaseWaitingForPluginOperations, nil
	data, err := json.Marshal(stored)
	require.NoError(t, err)
	b.store(t, "backups/"+name+"/velero-backup.json", data)
	require.NoError(t, kube.Update(t.Context(), b.Client, b.Client, backup, func(o *velerov1.Backup) error {
		o.Status = stored.Status
		return nil
	}))

	b.followed(t, name)
	b.ends(t, name, velerov1.BackupPhasePartiallyFailed, 1, 2)
	require.Len(t, b.messages(t, name), 2)
	for _, why := range []string{"the tape broke", "another server began the operation"} {
		require.Contains(t, b.results(t, name), why)
		require.Contains(t, b.log(t, name), why)
	}
	b.requireLeft(t, name, "backups/"+name+"/"+name)
}

// restoreInherited is inherited for a restore.
func (b *bed) restoreInherited(t *testing.T) {
	const name, from = "restore-inherited", "restore-inherited-source"
	file := b.left(t, name, "restore", ownRestores, vendorRestores)
	b.Backup(t, from, b.bucket, name)
	require.Equal(t, velerov1.BackupPhaseCompleted, b.BackupEnds(t, from).Status.Phase)
	for suffix, text := range map[string]string{"-results.gz": `{"warnings":{},"errors":{}}`, "-logs.gz": "a line\n", "-itemoperations.json.gz": file} {
		b.store(t, "restores/"+name+"/restore-"+name+suffix, zipped(t, text))
	}
	restore := &velerov1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: site.Server, Name: name}, Spec: velerov1.RestoreSpec{BackupName: from}}
	restore.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations
	require.NoError(t, b.Client.Create(t.Context(), restore))

	b.followed(t, name)
	restore = b.RestoreEnds(t, name)
	require.Equal(t, velerov1.RestorePhasePartiallyFailed, restore.Status.Phase, restore.Status.FailureReason)
	require.Equal(t, []int{1, 2}, []int{restore.Status.RestoreItemOperationsCompleted, restore.Status.RestoreItemOperationsFailed})
	require.Contains(t, string(b.bucket.ReadZipped(t, "restores/"+name+"/restore-"+name+"-results.gz")), "the tape broke")
	b.requireLeft(t, name, "restores/"+name+"/restore-"+name)
}

// requireLeft wants the ends of the operations of left in their file, and no Start.
func (b *bed) requireLeft(t *testing.T, job, stem string) {
	t.Helper()
	var list []operation
	require.NoError(t, json.Unmarshal(b.bucket.ReadZipped(t, stem+"-itemoperations.json.gz"), &list))
	phases := map[string]string{}
	for _, o := range list {
		phases[o.Spec.ResourceIdentifier.Name] = o.Status.Phase
	}
	require.Equal(t, map[string]string{"fine": "Completed", "broken": "Failed", "lost": "Failed"}, phases)
	require.Empty(t, b.calls.of(t, "start", job), "nothing is begun again")
}
