// Command benchplugin is the plugin of package bench. The name it is started under says what it is
// called for: as "matched" for every ConfigMap, which it annotates, as "operations" about operations
// that go on, else for ConfigMaps with a label that none has.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

func main() {
	registry := &plugin.Registry{}
	if filepath.Base(os.Args[0]) == operationsBinary {
		notes := &benchOperations{}
		registry.AsyncBackupItemAction("bench.example.com/operation", []string{"persistentvolumeclaims"}, func(plugin.Env) (plugin.AsyncBackupItemAction, error) { return notes, nil })
		runPlugin(registry)
		return
	}
	registry.BackupItemAction("bench.example.com/annotate", []string{"configmaps"}, func(plugin.Env) (plugin.BackupItemAction, error) {
		return annotateAction{matched: filepath.Base(os.Args[0]) == "matched"}, nil
	})
	runPlugin(registry)
}

func runPlugin(registry *plugin.Registry) {
	if err := serve.Run(registry); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type annotateAction struct{ matched bool }

func (a annotateAction) AppliesTo(context.Context) (plugin.Selector, error) {
	if a.matched {
		return plugin.Selector{}, nil
	}
	return plugin.Selector{LabelSelector: "bench.example.com/nobody-has"}, nil
}

func (annotateAction) Execute(_ context.Context, in *plugin.BackupInput) (*plugin.BackupOutput, error) {
	in.Item.SetAnnotations(map[string]string{"bench.example.com/seen": in.Backup.Name()})
	return plugin.NewBackupOutput(in.Item), nil
}
