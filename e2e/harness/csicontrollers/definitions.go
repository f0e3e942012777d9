package csicontrollers

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// definitions is the module with the definitions of the snapshot API.
const definitions = "github.com/kubernetes-csi/external-snapshotter/client/v8"

// Define makes a cluster serve snapshot.storage.k8s.io by the published definitions, those of the
// module that the snapshot-controller is built with, and returns once it does.
func Define(ctx context.Context, config *rest.Config) error {
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", definitions)
	command.Dir, command.Env = filepath.Join(root, "e2e", "tools", "snapshotter"), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("find module %s: %w: %s", definitions, err, output)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return fmt.Errorf("find module %s: %w", definitions, err)
	}
	paths, err := filepath.Glob(filepath.Join(module.Dir, "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("module %s has no definitions of snapshot.storage.k8s.io", definitions)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: paths, ErrorIfPathMissing: true}); err != nil {
		return fmt.Errorf("define snapshot.storage.k8s.io: %w", err)
	}
	return nil
}
