// A plugin to begin with: one action that sees Deployments as they are backed up, one that sees
// them as they are restored, one that works on claims in its process while the backup goes on, and
// two that have work on claims done elsewhere, for Velero too. Copy the directory, change the module's name in go.mod and the names of the actions, and keep the tests
// going.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

func main() {
	if err := serve.Run(plugins()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// plugins names everything that this binary serves.
func plugins() *plugin.Registry {
	registry := &plugin.Registry{}
	registry.BackupItemAction("example.com/note-replicas", []string{"deployments.apps"}, newNoteReplicas)
	registry.RestoreItemAction("example.com/config-first", []string{"deployments.apps"}, newConfigFirst)
	registry.AsyncBackupItemAction("example.com/copy-claim", []string{"persistentvolumeclaims"}, newCopyClaim)
	registry.AsyncBackupItemAction("example.com/hand-over", []string{"persistentvolumeclaims"}, newBackupHandOver, plugin.OutOfProcess())
	registry.AsyncRestoreItemAction("example.com/hand-over", []string{"persistentvolumeclaims"}, newRestoreHandOver, plugin.OutOfProcess())
	return registry
}
