package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
)

const (
	adoptTimeout  = time.Minute // until controllers have adopted what was restored
	deleteTimeout = time.Minute
)

func (d *demo) runBackup(ctx context.Context) error {
	d.Step("Back up")
	args := []string{
		"backup", "create", backupName, "--include-namespaces", strings.Join(d.estateNamespaces(), ","), "--include-cluster-resources", "--wait",
	}
	if d.kubeconfig != "" {
		args = append(args, "--selector", seed.Selector()) // not the whole shared cluster
	}
	if _, err := d.runHoldfast(ctx, args...); err != nil {
		return err
	}
	status, err := d.requireCompleted(ctx, "backup", backupName)
	if err != nil {
		return err
	}
	d.result.backedUp = status.Progress.ItemsBackedUp
	d.Say("%d of %d objects, %d errors, %d warnings", status.Progress.ItemsBackedUp, status.Progress.TotalItems, status.Errors, status.Warnings)
	return nil
}

// requireCompleted reads the status of a finished backup or restore and refuses anything but Completed.
func (d *demo) requireCompleted(ctx context.Context, noun, name string) (product.Status, error) {
	status, err := d.cli.Status(ctx, noun, name)
	if err != nil {
		return status, err
	}
	if status.Phase != "Completed" || status.Errors != 0 {
		return status, fmt.Errorf("%s %s is %s with %d errors (%s)", noun, name, status.Phase, status.Errors, status.FailureReason)
	}
	return status, nil
}

// listTarball reads the tarball that the backup left in the bucket.
func (d *demo) listTarball(ctx context.Context) error {
	d.Step("Look into the tarball")
	path := filepath.Join(d.dir, "demo.tar.gz")
	if _, err := d.runHoldfast(ctx, "backup", "download", backupName, "--output", path); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	entries := 0
	for archive := tar.NewReader(compressed); ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: entry %d: %w", path, entries, err)
		}
		if entries%500 == 0 {
			d.Say("%.110s", header.Name)
		}
	}
	d.Say("%d entries: each object once by its kind and once by its preferred version, as Velero writes them", entries)
	return nil
}

func (d *demo) takeSnapshot(ctx context.Context) error {
	d.Step("Note every live object, with a program of its own")
	_, err := d.runComparison(ctx, "snapshot")
	return err
}

// runComparison runs the separate comparison program and returns what it printed.
func (d *demo) runComparison(ctx context.Context, verb string, args ...string) (string, error) {
	full := append([]string{
		verb, "--kubeconfig", d.cli.Kubeconfig, "--file", filepath.Join(d.dir, "before.snapshot"),
		"--namespaces", strings.Join(d.estateNamespaces(), ","), "--cluster-selector", seed.Selector(),
	}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(d.bin, "e2e", "compare"), full...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output strings.Builder
	cmd.Stdout = io.MultiWriter(&output, d)
	cmd.Stderr = d
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("compare %s: %w", verb, err)
	}
	return output.String(), nil
}

func (d *demo) destroyEstate(ctx context.Context) error {
	d.Step("Destroy: delete the namespaces, the custom resource definitions and every cluster-scoped object of the estate")
	count, err := seed.Remove(ctx, d.config)
	if err != nil {
		return err
	}
	d.Say("%d cluster-scoped objects deleted, %d namespaces with everything in them among these", count, len(d.estateNamespaces()))
	return nil
}

func (d *demo) runRestore(ctx context.Context) error {
	d.Step("Restore")
	if _, err := d.runHoldfast(ctx, "restore", "create", restoreName, "--from-backup", backupName, "--wait"); err != nil {
		return err
	}
	status, err := d.requireCompleted(ctx, "restore", restoreName)
	if err != nil {
		return err
	}
	d.result.restored = status.Progress.ItemsRestored
	d.Say("%d of %d objects, %d errors, %d warnings", status.Progress.ItemsRestored, status.Progress.TotalItems, status.Errors, status.Warnings)
	return nil
}

// equalLine is the last line of a comparison in which nothing differs.
var equalLine = regexp.MustCompile(`equal: (\d+) of (\d+) objects \((\d+) with owner references\)`)

func (d *demo) compareEstate(ctx context.Context) error {
	d.Step("Compare every object with what was noted before")
	output, err := d.runComparison(ctx, "diff", "--wait", adoptTimeout.String())
	if err != nil {
		return err
	}
	numbers := equalLine.FindStringSubmatch(output)
	if numbers == nil || numbers[1] != numbers[2] {
		return fmt.Errorf("the comparison does not say that all objects are equal: %q", output)
	}
	d.result.equal, _ = strconv.Atoi(numbers[1]) // digits, by the pattern
	d.result.owned, _ = strconv.Atoi(numbers[3])
	if d.result.equal < d.result.seeded {
		return fmt.Errorf("%d objects compared, %d made", d.result.equal, d.result.seeded)
	}
	return nil
}

func (d *demo) deleteBackup(ctx context.Context) error {
	d.Step("Delete the backup")
	before, err := product.Files(d.server.Bucket())
	if err != nil {
		return err
	}
	if len(before) == 0 {
		return fmt.Errorf("no file in %s although there is a backup", d.server.Bucket())
	}
	d.Say("the bucket holds %d files", len(before))
	if _, err := d.runHoldfast(ctx, "backup", "delete", backupName, "--confirm"); err != nil {
		return err
	}
	var left []string
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, deleteTimeout, true, func(context.Context) (bool, error) {
		var err error
		left, err = product.Files(d.server.Bucket())
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("the bucket is not empty, %d files such as %.3q are left: %w", len(left), left, err)
	}
	d.Say("the bucket holds 0 files")
	return nil
}
