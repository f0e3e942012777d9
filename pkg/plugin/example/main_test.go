package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
)

const deployment = `{
	"apiVersion": "apps/v1", "kind": "Deployment",
	"metadata": {"name": "web", "namespace": "shop", "annotations": {"example.com/config": "settings"}},
	"status": {"readyReplicas": 3}
}`

func TestNoteReplicas(t *testing.T) {
	action := plugintest.Start(t, plugins()).BackupItemAction("example.com/note-replicas")
	for object, want := range map[string]string{
		deployment: "3",
		`{"kind": "Deployment", "metadata": {"name": "new"}, "status": {}}`: "",
	} {
		out, err := action.Execute(t.Context(), &plugin.BackupInput{Item: plugintest.Object(t, object), Backup: plugintest.Job(t, "nightly")})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.Item.GetAnnotations()[readyAnnotation]; got != want {
			t.Errorf("%s is %q, want %q", readyAnnotation, got, want)
		}
	}
	strange := plugintest.Object(t, `{"kind": "Deployment", "status": {"readyReplicas": "many"}}`)
	if _, err := action.Execute(t.Context(), &plugin.BackupInput{Item: strange, Backup: plugintest.Job(t, "nightly")}); err == nil {
		t.Error("replicas that are no number went unnoticed")
	}
}

func TestConfigFirst(t *testing.T) {
	action := plugintest.Start(t, plugins()).RestoreItemAction("example.com/config-first")
	object := plugintest.Object(t, deployment)
	out, err := action.Execute(t.Context(), &plugin.RestoreInput{Item: object, ItemFromBackup: object, Restore: plugintest.Job(t, "back")})
	if err != nil {
		t.Fatal(err)
	}
	want := []plugin.ResourceIdentifier{{Resource: "configmaps", Namespace: "shop", Name: "settings"}}
	if !reflect.DeepEqual(out.AdditionalItems, want) {
		t.Errorf("additional items are %v, want %v", out.AdditionalItems, want)
	}
}

func TestCopyClaim(t *testing.T) {
	for want, work := range map[plugin.State]func(context.Context, *unstructured.Unstructured) error{
		plugin.Succeeded: copyNothing,
		plugin.Failed:    func(context.Context, *unstructured.Unstructured) error { return errors.New("no space left") },
		plugin.Cancelled: func(ctx context.Context, _ *unstructured.Unstructured) error { <-ctx.Done(); return ctx.Err() },
	} {
		registry := (&plugin.Registry{}).AsyncBackupItemAction("example.com/copy-claim", []string{"persistentvolumeclaims"},
			func(env plugin.Env) (plugin.AsyncBackupItemAction, error) {
				return &copyClaim{log: env.Log, copies: map[string]*copying{}, copy: work}, nil
			})
		action := plugintest.Start(t, registry).AsyncBackupItemAction("example.com/copy-claim")
		backup := plugintest.Job(t, "nightly")
		start := func() plugin.Operation {
			claim := plugintest.Object(t, `{"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {"volumeName": "pv-1"}}`)
			out, err := action.Start(t.Context(), &plugin.AsyncBackupInput{BackupInput: plugin.BackupInput{Item: claim, Backup: backup}, IdempotencyKey: "key"})
			if err != nil {
				t.Fatal(err)
			}
			return plugin.Operation{ID: out.OperationID, Job: backup}
		}
		op := start()
		if again := start(); again.ID != op.ID {
			t.Errorf("a repeated start began %q beside %q", again.ID, op.ID)
		}
		if want == plugin.Cancelled {
			if accepted, err := action.Cancel(t.Context(), op, time.Minute); err != nil || !accepted {
				t.Fatalf("cancel: %v, %v", accepted, err)
			}
		}
		progress := plugin.Progress{State: plugin.Running}
		for progress.State == plugin.Running && t.Context().Err() == nil {
			var err error
			if progress, err = action.Progress(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
		if progress.State != want {
			t.Errorf("state is %v, want %v", progress.State, want)
		}
		if _, err := action.Progress(t.Context(), plugin.Operation{ID: "other", Job: backup}); status.Code(err) != codes.NotFound {
			t.Errorf("progress of an unknown operation: %v", err)
		}
	}
}

// The binary is what a server starts.
func TestBinary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "plugin")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // static, as a server's image needs it
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	described, err := plugintest.Exec(t, binary, "--log-level", "debug").Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(described.GetPlugins()); got != 5 {
		t.Errorf("it serves %d plugins, want 5", got)
	}
}
