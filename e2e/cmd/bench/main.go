// Command bench measures the services and writes .out/bench.json. BENCH=quick measures small sizes
// in a few minutes, BENCH=sizes only backups and restores, BENCH=restore only 10,000 objects,
// BENCH=resume only the backup whose runner is killed, BENCH=queue only the queue, BENCH=operations
// only what polls operations, BENCH=huge only objects of 900 KB, BENCH=plugins only what plugins cost,
// BENCH=footprint only the memory of a restore of a million objects, BENCH=manifest only the manifest of as
// many, and one object that is read out of a backup of a gibibyte, BENCH=search only the search index,
// BENCH=plan only the dry run of a backup, BENCH=volumes only the data of volumes, beside kopia's own command.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/e2e/bench"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runBench(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runBench(ctx context.Context) error {
	root, err := testbed.RepositoryRoot()
	if err != nil {
		return err
	}
	config, err := parseSizes(os.Getenv("BENCH"))
	if err != nil {
		return err
	}
	config.Log = os.Stdout
	if config.Dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return err
	}
	figures, err := bench.Run(ctx, config)
	if figures != nil {
		path := filepath.Join(root, ".out", "bench.json")
		if writeErr := figures.Write(path); writeErr != nil {
			return writeErr
		}
		fmt.Println("figures are in", path)
	}
	if err != nil {
		return fmt.Errorf("%w (logs are in %s)", err, config.Dir)
	}
	return os.RemoveAll(config.Dir)
}

// parseSizes reads what BENCH asks for.
func parseSizes(wanted string) (bench.Config, error) {
	switch wanted {
	case "":
		return bench.Config{Sizes: []int{10_000, 50_000}, Huge: 2000, Plan: 50_000, Restore: 10_000, Plugins: 10_000, Queue: []int{100, 1000, 10_000}, Ended: 3000, Operations: 10_000, Resume: 50_000, ClaimTimeout: 30 * time.Second, Footprint: 1_000_000, Search: 50_000, Manifest: 1_000_000, GetItem: 1600, Volumes: 2048}, nil
	case "quick":
		return bench.Config{Sizes: []int{2000, 10_000}, Huge: 200, Plan: 10_000, Restore: 2000, Plugins: 2000, Queue: []int{100, 1000}, Ended: 3000, Operations: 10_000, Resume: 10_000, ClaimTimeout: 5 * time.Second, Footprint: 100_000, Search: 5000, Manifest: 100_000, GetItem: 200, Volumes: 64}, nil
	case "queue":
		return bench.Config{Queue: []int{100, 1000, 10_000}, Ended: 3000}, nil
	case "operations":
		return bench.Config{Operations: 10_000}, nil
	case "sizes":
		return bench.Config{Sizes: []int{10_000, 50_000}, Huge: 2000, Restore: 10_000}, nil
	case "restore":
		return bench.Config{Sizes: []int{10_000}, Restore: 10_000}, nil
	case "huge":
		return bench.Config{Huge: 2000}, nil
	case "footprint":
		return bench.Config{Footprint: 1_000_000}, nil
	case "manifest":
		return bench.Config{Manifest: 1_000_000, GetItem: 1600}, nil
	case "plan":
		return bench.Config{Plan: 50_000}, nil
	case "search":
		return bench.Config{Search: 50_000}, nil
	case "volumes":
		return bench.Config{Volumes: 2048}, nil
	case "plugins":
		return bench.Config{Plugins: 10_000}, nil
	case "resume":
		return bench.Config{Resume: 50_000, ClaimTimeout: 30 * time.Second}, nil
	}
	return bench.Config{}, fmt.Errorf("BENCH=%s: want nothing, quick, sizes, restore, queue, operations, huge, plugins, footprint, manifest, plan, search, volumes or resume", wanted)
}
