package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/pkg/extension/pluginhost"
)

// checkPlugins starts each binary of the plugin directory, as a service does, and lists what it
// registers.
func (e *examination) checkPlugins(ctx context.Context, n *checkNotes) {
	dir := e.Plugins.Dir
	if dir == "" {
		n.addSkipped("", "no directory of plugins was given", "give --plugin-dir or $HOLDFAST_PLUGIN_DIR: that of the services, or a copy of it")
		return
	}
	if _, err := os.Stat(dir); err != nil { // to a service, one that is absent holds no plugins
		n.addFailure("", err.Error(), "correct --plugin-dir")
		return
	}
	host, err := pluginhost.New(ctx, e.Plugins)
	if err != nil {
		n.addFailure("", err.Error(), "make the directory readable, and its plugins answer in time")
		return
	}
	for _, f := range host.Failures() {
		n.addFailure(filepath.Base(f.Path), f.Err.Error(), "replace the binary by one that is built for this machine and registers its plugins, or remove it from "+dir)
	}
	registered := map[string]int{}
	var order []string
	for _, p := range host.Plugins() {
		if registered[p.Path] == 0 {
			order = append(order, p.Path)
		}
		registered[p.Path]++
	}
	for _, path := range order {
		n.addOK(filepath.Base(path), "registers "+countNoun(registered[path], "plugin"))
	}
	if len(n.findings) == 0 {
		n.addOK("", fmt.Sprintf("no plugins in %s", dir))
	}
}
