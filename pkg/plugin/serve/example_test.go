package serve_test

import (
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/pkg/plugin"
	"github.com/holdfast-io/holdfast/pkg/plugin/serve"
)

// The whole main function of a plugin. A server runs the binary; typed in a shell it fails.
func ExampleRun() {
	registry := (&plugin.Registry{}).ItemBlockAction("example.com/together", []string{"pods"}, newTogether)
	if err := serve.Run(registry); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newTogether(plugin.Env) (plugin.ItemBlockAction, error) { return nil, nil }
