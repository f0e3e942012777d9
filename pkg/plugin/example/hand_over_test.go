package main

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
)

const claim = `{"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop"}}`

// Work that is handed over goes on without the process that asked for it: another one tells how.
func TestHandOver(t *testing.T) {
	exchange := t.TempDir()
	t.Setenv(exchangeVariable, exchange)
	action := plugintest.Start(t, plugins()).AsyncBackupItemAction("example.com/hand-over")
	backup, object := plugintest.Job(t, "nightly"), plugintest.Object(t, claim)
	in := &plugin.AsyncBackupInput{BackupInput: plugin.BackupInput{Item: object, Backup: backup}, IdempotencyKey: "key"}
	for range 2 { // a repeated call
		out, err := action.Start(t.Context(), in)
		if err != nil || out.OperationID != "backup-key" || out.InProcess {
			t.Fatalf("start: %v, %v", out, err)
		}
	}
	op := plugin.Operation{ID: "backup-key", Job: backup}
	worker := handOver{directory: exchange}
	restore := plugintest.Start(t, plugins()).AsyncRestoreItemAction("example.com/hand-over")
	out, err := restore.Start(t.Context(), &plugin.AsyncRestoreInput{RestoreInput: plugin.RestoreInput{Item: object, ItemFromBackup: object, Restore: plugintest.Job(t, "back")}, IdempotencyKey: "key"})
	if err != nil || out.OperationID != "restore-key" {
		t.Fatalf("start: %v, %v", out, err)
	}
	for want, r := range map[plugin.State]request{
		plugin.Running: {Bytes: 1, Of: 2}, plugin.Succeeded: {State: "Done"}, plugin.Failed: {State: "Failed", Error: "no space left"},
	} {
		if err := worker.writeRequest(op.ID, r); err != nil {
			t.Fatal(err)
		}
		p, err := plugintest.Start(t, plugins()).AsyncBackupItemAction("example.com/hand-over").Progress(t.Context(), op)
		if err != nil || p.State != want || p.Error != r.Error {
			t.Errorf("progress: %+v, %v, want state %v", p, err, want)
		}
	}
	op.ID = out.OperationID
	if accepted, err := restore.Cancel(t.Context(), op, time.Minute); err != nil || !accepted {
		t.Errorf("cancel: %v, %v", accepted, err)
	}
	if p, err := restore.Progress(t.Context(), op); err != nil || p.State != plugin.Cancelled {
		t.Errorf("progress: %+v, %v", p, err)
	}
	op.ID = "other"
	if _, err := action.Progress(t.Context(), op); status.Code(err) != codes.NotFound {
		t.Errorf("progress of an unknown operation: %v", err)
	}
}

func TestNothingIsHandedOverWithoutAnExchange(t *testing.T) {
	t.Setenv(exchangeVariable, "")
	action := plugintest.Start(t, plugins()).AsyncBackupItemAction("example.com/hand-over")
	out, err := action.Start(t.Context(), &plugin.AsyncBackupInput{
		BackupInput: plugin.BackupInput{Item: plugintest.Object(t, claim), Backup: plugintest.Job(t, "nightly")}, IdempotencyKey: "key",
	})
	if err != nil || out.OperationID != "" {
		t.Errorf("start: %v, %v", out, err)
	}
}
