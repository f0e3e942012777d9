package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Import gives the containerd of the cluster in dir the images in files, OCI image layouts as
// `make images` writes them, under the names in them.
func Import(ctx context.Context, dir string, files ...string) error {
	address, err := addressOf(dir)
	if err != nil {
		return err
	}
	return importImages(ctx, address, files...)
}

// Tag gives images that were imported from files another tag beside that in their names, in place of
// others that have it.
func Tag(ctx context.Context, dir, tag string, files ...string) error {
	address, err := addressOf(dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		name, err := imageName(file)
		if err != nil {
			return err
		}
		other := name[:strings.LastIndex(name, ":")+1] + tag
		if name == other {
			continue
		}
		if err := runImageCommand(ctx, address, "tag", "--force", name, other); err != nil {
			return fmt.Errorf("tag %s: %w", name, err)
		}
	}
	return nil
}

// addressOf returns the socket of the containerd of a cluster that runs.
func addressOf(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	s, err := readState(dir)
	if err != nil {
		return "", err
	}
	if !s.isRunning(dir) {
		return "", fmt.Errorf("%w: %s", ErrNotRunning, dir)
	}
	return fmt.Sprintf("/proc/%d/root%s", s.Pid, socket), nil
}

func importImages(ctx context.Context, address string, files ...string) error {
	for _, file := range files {
		if err := runImageCommand(ctx, address, "import", file); err != nil {
			return fmt.Errorf("import %s: %w", file, err)
		}
	}
	return nil
}

// runImageCommand runs a command of ctr about the images that the kubelet sees.
func runImageCommand(ctx context.Context, address string, args ...string) error {
	ctr, err := testbed.Binary("ctr")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, ctr, append([]string{"--address", address, "--namespace", "k8s.io", "images"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
