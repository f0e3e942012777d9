// Command footprint measures what a restore of many objects takes in memory: it plans and executes
// one from a manifest of its own making against an API server that only answers, in another
// process, and prints the peak of the restoring process's resident set in MiB. With -of manifest it
// measures that manifest alone: it is written, read, and compared with itself.
//
// The objects are ConfigMaps, and a custom resource, in each of 200 namespaces, with names of 60
// characters. Reading bodies from a
// bucket is not part of it, and neither are custom resources of the group velero.io.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/holdfast-io/holdfast/pkg/archive/manifest"
)

func main() {
	objects := flag.Int("objects", 1_000_000, "number of objects")
	owned := flag.Int("owned", 0, "how many in a hundred have an owner, which is restored after them")
	dir := flag.String("dir", "", "work directory; it must exist")
	of := flag.String("of", "restore", "what to measure: restore or manifest")
	server := flag.String("server", "", "URL of the API server: this is the restoring process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // this is where contexts begin
	run := func() error { return measureRestore(ctx, *dir, *objects, *owned) }
	switch {
	case *of == "manifest":
		run = func() error { return measureManifest(ctx, *dir, estateOf(*objects, *owned)) }
	case *server != "":
		run = func() error { return restoreAll(ctx, *dir, *server, estateOf(*objects, *owned)) }
	}
	err := run()
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "footprint:", err)
		os.Exit(1) //nolint:forbidigo // the end of main
	}
}

// measureManifest writes and reads the manifest, and prints the peak of this process.
func measureManifest(ctx context.Context, dir string, e estate) error {
	path := filepath.Join(dir, manifestFile)
	if err := e.writeManifest(path, dir); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	b, err := openBackup(ctx, path, e)
	if err != nil {
		return err
	}
	for _, err := range b.Items(ctx) {
		if err != nil {
			return err
		}
	}
	for pair, err := range manifest.Merge(ctx, b.reader, b.reader, manifest.MergeFilter{}) {
		if err != nil {
			return err
		}
		if pair.Difference(false) != manifest.Unchanged {
			return fmt.Errorf("%s differs from itself", pair.Item())
		}
	}
	peak, err := peakRSS()
	_, _ = fmt.Fprintf(os.Stdout, "peak in MiB:\n%.1f\n", peak)
	return errors.Join(err, b.file.Close())
}

// measureRestore makes the manifest, serves the API and runs the restoring process.
func measureRestore(ctx context.Context, dir string, objects, owned int) error {
	if err := estateOf(objects, owned).writeManifest(filepath.Join(dir, manifestFile), dir); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api := &http.Server{Handler: newAPI(), ReadHeaderTimeout: readHeaderTimeout}
	served := make(chan error, 1)
	go func() { served <- api.Serve(listener) }()
	cmd := exec.CommandContext(ctx, os.Args[0], "-dir", dir, "-objects", strconv.Itoa(objects), "-owned", strconv.Itoa(owned), "-server", "http://"+listener.Addr().String()) //nolint:gosec // itself
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if closeErr := api.Close(); err == nil {
		err = closeErr
	}
	if serveErr := <-served; err == nil && !errors.Is(serveErr, http.ErrServerClosed) {
		err = serveErr
	}
	return err
}
