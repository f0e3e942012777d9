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

// measureSearch measures the search index of manifest-indexer on made-up backups.
func (b *bench) measureSearch(ctx context.Context, objects int) error {
	_, _ = fmt.Fprintln(b.Log, "search over 500 backups, and the index of 100 backups of the same objects")
	said, err := b.runProgram(ctx, "searchindex", objects)
	if err != nil {
		return err
	}
	for line := range strings.Lines(said) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("searchindex said %q: %w", line, err)
		}
		b.figures.Set(name, value)
	}
	return nil
}

// runFootprint returns the peak of a process in MiB.
func (b *bench) runFootprint(ctx context.Context, objects int, of string) (peak float64, err error) {
	said, err := b.runProgram(ctx, "footprint", objects, "-owned", ownedPercent, "-of", of)
	if err != nil {
		return 0, err
	}
	return lastNumber(said)
}

// runProgram runs a program of bin/e2e in a directory of its own, and returns what it said.
func (b *bench) runProgram(ctx context.Context, name string, objects int, args ...string) (_ string, err error) {
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.Dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "e2e", name), append(args, "-objects", strconv.Itoa(objects), "-dir", dir)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, b.Log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, said.String())
	}
	return said.String(), nil
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
