package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Import gives the containerd of the cluster in dir the images in files, OCI image layouts as
// `make images` writes them, under the names in them.
func Import(ctx context.Context, dir string, files ...string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s, err := readState(dir)
	if err != nil {
		return err
	}
	if !s.runs(dir) {
		return fmt.Errorf("%w: %s", ErrNotRunning, dir)
	}
	return importImages(ctx, fmt.Sprintf("/proc/%d/root%s", s.Pid, socket), files...)
}

func importImages(ctx context.Context, address string, files ...string) error {
	ctr, err := testbed.Binary("ctr")
	if err != nil {
		return err
	}
	for _, file := range files {
		out, err := exec.CommandContext(ctx, ctr, "--address", address, "--namespace", "k8s.io", "images", "import", file).CombinedOutput()
		if err != nil {
			return fmt.Errorf("import %s: %w: %s", file, err, out)
		}
	}
	return nil
}
