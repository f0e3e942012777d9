package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"

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
	if got := len(described.GetPlugins()); got != 4 {
		t.Errorf("it serves %d plugins, want 4", got)
	}
}
