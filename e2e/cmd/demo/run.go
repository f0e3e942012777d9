package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-io/holdfast/e2e/harness/compare"
	"github.com/holdfast-io/holdfast/e2e/harness/product"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

const (
	backupName     = "demo"
	restoreName    = "demo-restore"
	cleanupTimeout = 2 * time.Minute
)

// demo is one run.
type demo struct {
	options
	*printer
	dir    string
	config *rest.Config
	cli    *product.CLI
	server *product.Server
	undo   []func(context.Context) error // newest last
	before *compare.Snapshot
	result result
}

// result is what the last lines state.
type result struct {
	seeded, backedUp, restored, equal, owned int
}

func runDemo(ctx context.Context, o options, out io.Writer) (err error) {
	d := &demo{options: o, printer: newPrinter(out)}
	if err := d.makeDir(); err != nil {
		return err
	}
	defer func() {
		// Ctrl-C must not stop the stopping.
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, d.stopAll(cleanup))
		if err == nil {
			d.printSummary()
		}
	}()
	for _, step := range []func(context.Context) error{
		d.startCluster, d.seedEstate, d.startServer, d.runBackup, d.listTarball, d.takeSnapshot, d.destroyEstate, d.runRestore, d.compareEstate, d.deleteBackup,
	} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Canceled
			}
			d.showServerLog()
			return err
		}
	}
	return nil
}

// showServerLog shows the end of the server's log after a failure: the directory is about to be removed.
func (d *demo) showServerLog() {
	if d.server != nil {
		d.Say("the last lines of the server's log:\n%s", testbed.Tail(d.server.LogPath(), 25))
	}
}

func (d *demo) makeDir() error {
	if d.keep != "" {
		dir, err := filepath.Abs(d.keep)
		if err != nil {
			return err
		}
		d.dir = dir
		return os.MkdirAll(dir, 0o700)
	}
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return err
	}
	d.dir = dir
	d.undo = append(d.undo, func(context.Context) error { return os.RemoveAll(dir) })
	return nil
}

// startCluster starts a control plane or looks at the one that was named.
func (d *demo) startCluster(ctx context.Context) error {
	namespace := "velero"
	kubeconfig := d.kubeconfig
	if kubeconfig == "" {
		d.Step("Start a control plane (etcd, kube-apiserver, kube-controller-manager) on loopback")
		cluster, err := testbed.Start(ctx, testbed.Config{Dir: filepath.Join(d.dir, "cluster"), Log: d})
		if err != nil {
			return err
		}
		d.undo = append(d.undo, func(context.Context) error { cluster.Stop(); return nil })
		d.config, kubeconfig = cluster.RestConfig(), cluster.Kubeconfig()
	} else {
		d.Step("Look at the cluster of %s", kubeconfig)
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		d.config, namespace = config, sharedNamespace
		if err := d.checkShared(ctx); err != nil {
			return err
		}
	}
	d.cli = &product.CLI{Binary: filepath.Join(d.bin, "holdfast"), Kubeconfig: kubeconfig, Namespace: namespace, Output: d}
	return nil
}

func (d *demo) seedEstate(ctx context.Context) error {
	d.Step("Make a sample estate in %d namespaces", len(d.estateNamespaces()))
	if d.kubeconfig != "" {
		d.undo = append(d.undo, func(ctx context.Context) error { _, err := seed.Remove(ctx, d.config); return err })
	}
	count, err := seed.Apply(ctx, d.config, seed.Options{Log: d})
	if err != nil {
		return err
	}
	d.result.seeded = count
	d.Say("%d objects: workloads, services, RBAC, volumes and claims, Secrets with binary data, custom resources that own each other,", count)
	d.Say("objects of nearly 1 MB, names of 253 characters; controllers have added Pods, ReplicaSets and more")
	return nil
}

func (d *demo) startServer(ctx context.Context) error {
	d.Step("Start Holdfast: six services and a NATS server in one process")
	args := []string{"--free-ports"} // the demo must not mind whatever else listens on this machine
	if d.share {
		args = append(args, "--allow-velero")
	}
	d.Command("holdfast up --namespace", d.cli.Namespace, "--data-dir", filepath.Join(d.dir, "data"), strings.Join(args, " "))
	server, err := d.cli.Up(ctx, d.dir, args...)
	if err != nil {
		return err
	}
	d.server = server
	d.undo = append(d.undo, func(context.Context) error { server.Shutdown(); return nil })
	d.Say(product.ReadyLine)
	return nil
}

// stopAll undoes what was started, newest first, and reports everything that did not work.
func (d *demo) stopAll(ctx context.Context) error {
	var failures []error
	for i := len(d.undo) - 1; i >= 0; i-- {
		failures = append(failures, d.undo[i](ctx))
	}
	return errors.Join(failures...)
}

func (d *demo) estateNamespaces() []string { return seed.Options{}.Namespaces() }

func (d *demo) printSummary() {
	d.Step("Done: everything is stopped")
	d.Say("objects backed up:       %d", d.result.backedUp)
	d.Say("objects restored:        %d (those that were still there are skipped)", d.result.restored)
	d.Say("objects compared equal:  %d of %d, owner references of %d objects included", d.result.equal, d.result.equal, d.result.owned)
	d.Say("bucket:                  empty, 0 files")
}

// runHoldfast shows and runs one command.
func (d *demo) runHoldfast(ctx context.Context, args ...string) (string, error) {
	d.Command("holdfast", strings.Join(args, " "))
	return d.cli.Run(ctx, args...)
}
