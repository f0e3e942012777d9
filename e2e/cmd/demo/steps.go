package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
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

// takeSnapshot notes the live objects.
func (d *demo) takeSnapshot(ctx context.Context) (err error) {
	d.Step("Note every live object")
	if d.before, err = compare.Take(ctx, d.config, d.scope()); err != nil {
		return err
	}
	d.Say("objects: %d of %d kinds", len(d.before.Objects), len(d.before.Kinds()))
	d.printExcluded(d.before)
	return nil
}

func (d *demo) scope() compare.Scope {
	return compare.Scope{Namespaces: d.estateNamespaces(), Selector: seed.Selector()}
}

func (d *demo) printExcluded(snapshot *compare.Snapshot) {
	count, percent := snapshot.ExcludedCount()
	d.Say("excluded: %d objects made by controllers under new names (%.1f %%): %v", count, percent, snapshot.Excluded)
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

func (d *demo) compareEstate(ctx context.Context) error {
	d.Step("Compare every object with what was noted before")
	report, after, err := compare.DiffLive(ctx, d.config, d.scope(), d.before, adoptTimeout)
	if err != nil {
		return err
	}
	for _, rule := range compare.Ignored() {
		d.Say("ignored: %s", rule)
	}
	d.printExcluded(after)
	d.Say("%sequal: %d of %d objects (%d with owner references), %d different, %d missing, %d extra", report,
		report.Equal, len(d.before.Objects), report.Owned, len(report.Different), len(report.Missing), len(report.Extra))
	if !report.Same() {
		return errors.New("objects differ")
	}
	d.result.equal, d.result.owned = report.Equal, report.Owned
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
