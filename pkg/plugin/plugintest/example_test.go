package plugintest_test

import (
	"context"
	"testing"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/plugintest"
)

// protect keeps the Secrets of a backup from being deleted with it.
type protect struct{ plugin.Everything }

func newProtect(plugin.Env) (plugin.DeleteItemAction, error) { return protect{}, nil }

// Execute implements plugin.DeleteItemAction.
func (protect) Execute(context.Context, *plugin.BackupInput) error { return nil }

// A test of a plugin serves its registry and calls the plugin as a server does.
func ExampleStart() {
	_ = func(t *testing.T) {
		registry := (&plugin.Registry{}).DeleteItemAction("example.com/protect", []string{"secrets"}, newProtect)
		action := plugintest.Start(t, registry).DeleteItemAction("example.com/protect")
		secret := plugintest.Object(t, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "db"}}`)
		if err := action.Execute(t.Context(), &plugin.BackupInput{Item: secret, Backup: plugintest.Job(t, "nightly")}); err != nil {
			t.Error(err)
		}
	}
}
