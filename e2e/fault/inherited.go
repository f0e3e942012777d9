package fault

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube"
)

// unended are operations that another server began and did not follow to their ends: one whose action
// is not here, and one that is followed. field names the action of a backup or a restore.
func (b *Bed) unended(field, job string) string {
	const one = `{"spec":{%q:%q,"resourceIdentifier":{"Group":"","Resource":"pods","Namespace":"a","Name":%q},"operationID":%q},"status":{"phase":"InProgress"}}`
	return "[" + fmt.Sprintf(one, field, "x/y", "lost", "op-1") + "," + fmt.Sprintf(one, field, beginner, "followed", b.called+":"+job) + "]"
}

// zipped writes a compressed document of the bucket.
func zipped(path, text string) error {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o600)
}

// beginInheritedBackup is what another server leaves that stored a backup and waits for operations.
func beginInheritedBackup(ctx context.Context, b *Bed, name string) error {
	backup := &velerov1.Backup{ObjectMeta: named(name), Spec: velerov1.BackupSpec{IncludedNamespaces: []string{small}, StorageLocation: location}}
	backup.Status.Phase = velerov1.BackupPhaseDeleting // nothing looks at it before its files are there
	if err := b.apiClient.create(ctx, backup); err != nil {
		return err
	}
	if err := plantBackup(ctx, b, name); err != nil {
		return err
	}
	dir := filepath.Join(b.bucket.path, "backups", name)
	data, err := os.ReadFile(filepath.Join(dir, "velero-backup.json"))
	if err != nil {
		return err
	}
	var stored velerov1.Backup
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	stored.UID, stored.Status.Phase, stored.Status.CompletionTimestamp = backup.UID, velerov1.BackupPhaseWaitingForPluginOperations, nil
	if data, err = json.Marshal(stored); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "velero-backup.json"), data, 0o600); err != nil {
		return err
	}
	if err := zipped(filepath.Join(dir, name+"-itemoperations.json.gz"), b.unended("backupItemAction", name)); err != nil {
		return err
	}
	return kube.Update(ctx, b.client, b.client, backup, func(o *velerov1.Backup) error {
		o.Status = stored.Status
		return nil
	})
}

func observeInheritedBackup(ctx context.Context, b *Bed, name string) (Facts, error) {
	backup, err := b.apiClient.ended(ctx, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("backups", name)
	f := Facts{
		"phase": string(backup.Status.Phase), "reason": backup.Status.FailureReason, "warnings": strconv.Itoa(backup.Status.Warnings),
		"errors": strconv.Itoa(backup.Status.Errors), "failed operations": strconv.Itoa(backup.Status.BackupItemOperationsFailed),
		"completed operations": strconv.Itoa(backup.Status.BackupItemOperationsCompleted),
	}
	scrub := strings.NewReplacer(name, "NAME", string(backup.UID), "UID")
	if err := b.bucket.swept(ctx, f, dir, scrub); err != nil {
		return nil, err
	}
	texts, err := b.bucket.texts(dir, []string{name + "-results.gz", name + "-itemoperations.json.gz"}, scrub)
	if err != nil {
		return nil, err
	}
	f.add("document ", texts)
	return f, b.bucket.committed(backup, dir)
}

// beginInheritedRestore is what another server leaves that restored all objects and waits for
// operations.
func beginInheritedRestore(ctx context.Context, b *Bed, name string) error {
	dir := filepath.Join(b.bucket.path, "restores", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for file, text := range map[string]string{
		"-results.gz": `{"warnings":{},"errors":{}}`, "-logs.gz": "a line\n", "-itemoperations.json.gz": b.unended("restoreItemAction", name),
	} {
		if err := zipped(filepath.Join(dir, "restore-"+name+file), text); err != nil {
			return err
		}
	}
	restore := &velerov1.Restore{ObjectMeta: named(name), Spec: velerov1.RestoreSpec{BackupName: prepared}}
	restore.Status.Phase = velerov1.RestorePhaseWaitingForPluginOperations
	restore.Status.Progress = &velerov1.RestoreProgress{TotalItems: 7, ItemsRestored: 7}
	return b.apiClient.create(ctx, restore)
}

func observeInheritedRestore(ctx context.Context, b *Bed, name string) (Facts, error) {
	restore, err := b.apiClient.restored(ctx, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join("restores", name)
	f := Facts{
		"phase": string(restore.Status.Phase), "reason": restore.Status.FailureReason, "warnings": strconv.Itoa(restore.Status.Warnings),
		"errors": strconv.Itoa(restore.Status.Errors), "failed operations": strconv.Itoa(restore.Status.RestoreItemOperationsFailed),
		"completed operations": strconv.Itoa(restore.Status.RestoreItemOperationsCompleted),
	}
	scrub := strings.NewReplacer(name, "NAME", string(restore.UID), "UID")
	if err := b.bucket.swept(ctx, f, dir, scrub); err != nil {
		return nil, err
	}
	texts, err := b.bucket.texts(dir, []string{"restore-" + name + "-results.gz", "restore-" + name + "-itemoperations.json.gz"}, scrub)
	f.add("document ", texts)
	return f, err
}
