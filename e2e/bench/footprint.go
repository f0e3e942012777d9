package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// ownedPercent is how many in a hundred objects wait for an owner. Promise P7 bounds the restore of a
// million such objects to 340 MiB.
const ownedPercent = "30"

// measureFootprint measures what planning and executing a restore of many objects takes in memory. The
// program that does it makes the manifest and the API server up: creating a million objects in a
// real one would take an hour.
func (b *bench) measureFootprint(ctx context.Context, objects int) error {
	_, _ = fmt.Fprintf(b.Log, "restore of %d objects\n", objects)
	peak, err := b.runFootprint(ctx, objects, "restore")
	if err != nil {
		return err
	}
	b.figures.Set(fmt.Sprintf("restore.peak_rss_mib.%d", objects), peak)
	return nil
}

// measureManifest measures what it takes in memory to write a manifest of many objects, to read it, and to compare
// it with itself.
func (b *bench) measureManifest(ctx context.Context, objects int) error {
	_, _ = fmt.Fprintf(b.Log, "manifest of %d objects\n", objects)
	peak, err := b.runFootprint(ctx, objects, "manifest")
	if err != nil {
		return err
	}
	b.figures.Set(fmt.Sprintf("manifest.peak_rss_mib.%d", objects), peak)
	return nil
}

// runFootprint returns the peak of a process in MiB.
func (b *bench) runFootprint(ctx context.Context, objects int, of string) (peak float64, err error) {
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(b.Dir, "footprint")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "e2e", "footprint"), "-objects", strconv.Itoa(objects), "-owned", ownedPercent, "-dir", dir, "-of", of)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, b.Log
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, said.String())
	}
	return lastNumber(said.String())
}

// lastNumber reads the last line of what a program said.
func lastNumber(said string) (float64, error) {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	peak, err := strconv.ParseFloat(lines[len(lines)-1], 64)
	if err != nil {
		return 0, fmt.Errorf("footprint said %q: %w", said, err)
	}
	return peak, nil
}
