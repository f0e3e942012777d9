package bench

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/e2e/harness/fleet"
	"github.com/holdfast-io/holdfast/e2e/harness/seed"
	"github.com/holdfast-io/holdfast/e2e/harness/testbed"
)

// Config is what to measure.
type Config struct {
	Dir     string    // scratch space on a disk
	Log     io.Writer // progress and figures
	Sizes   []int     // numbers of 2 KB objects to back up
	Huge    int       // number of 900 KB objects to back up; 0 leaves that out
	Plan    int       // number of 2 KB objects whose backup is planned; 0 leaves that out
	Restore int       // number of objects to restore; must be one of Sizes; 0 leaves that out
	Resume  int       // number of objects of the backup whose runner is killed; 0 leaves that out
	Plugins int       // number of objects to back up with and without plugins; 0 leaves that out
	Queue   []int     // lengths of the queue to measure
	// Ended is the number of ended backups beside which admissions are measured; 0 leaves that out.
	Ended int
	// Operations is the number of open operations that the monitors are measured beside; 0 leaves that
	// out.
	Operations int
	// Footprint is the number of made-up objects whose restore is measured in memory; 0 leaves that
	// out.
	Footprint int
	// Manifest is the number of made-up objects of the manifest that is measured in memory; 0 leaves that
	// out.
	Manifest int
	// GetItem is the number of 900 KB objects of the backup from which one is read; 0 leaves that out.
	GetItem int
	// Volumes is the size of the tree of files that is stored and restored, in MiB; 0 leaves that out.
	Volumes int
	// Search is the number of objects of each of the 100 backups whose search index is measured; 0 leaves
	// that and queries out.
	Search int
	// ClaimTimeout is the runners' --claim-timeout where one is killed.
	ClaimTimeout time.Duration
}

const (
	objectBytes = 2000
	hugeBytes   = 900_000
)

// bench is one run: a control plane, and a fleet for each measurement, so that a peak belongs to it
// alone.
type bench struct {
	Config
	cluster *testbed.Cluster
	jobs    *jobClient
	figures *Figures
	fleets  int
}

// Run measures and returns the figures. Everything it starts is stopped when it returns.
func Run(ctx context.Context, config Config) (*Figures, error) {
	cluster, err := testbed.Start(ctx, testbed.Config{Dir: filepath.Join(config.Dir, "cluster"), Log: config.Log})
	if err != nil {
		return nil, err
	}
	defer cluster.Stop()
	b := &bench{Config: config, cluster: cluster, figures: &Figures{Log: config.Log}}
	if b.jobs, err = newJobs(cluster.RestConfig()); err != nil {
		return nil, err
	}
	if err := b.jobs.createNamespace(ctx, serverNamespace); err != nil {
		return nil, err
	}
	for _, m := range b.measurements() {
		if err := m.run(ctx, m.size); err != nil {
			return b.figures, fmt.Errorf("%s: %w", m.what, err)
		}
	}
	return b.figures, nil
}

// measurement is one of a run.
type measurement struct {
	what string
	size int
	run  func(context.Context, int) error
}

// measurements are those that are asked for, in their order.
func (b *bench) measurements() []measurement {
	var all []measurement
	for _, size := range b.Sizes {
		all = append(all, measurement{fmt.Sprintf("%d objects", size), size, b.measureSize})
	}
	all = append(all, measurement{"dry run", b.Plan, b.measurePlan}, measurement{"plugins", b.Plugins, b.measurePlugins})
	for _, queued := range b.Queue {
		all = append(all, measurement{fmt.Sprintf("queue of %d", queued), queued, b.measureQueue})
	}
	all = append(all,
		measurement{"admissions beside ended backups", b.Ended, b.admissions},
		measurement{"operations", b.Operations, b.measureOperations},
		measurement{"resume", b.Resume, b.measureResume},
		measurement{"footprint", b.Footprint, b.measureFootprint},
		measurement{"search", b.Search, b.measureSearch},
		measurement{"manifest", b.Manifest, b.measureManifest},
		measurement{"huge objects", b.Huge, b.measureHuge},
		measurement{"one object", b.GetItem, b.measureGetItem},
		measurement{"volume data", b.Volumes, b.measureVolumes},
	)
	return slices.DeleteFunc(all, func(m measurement) bool { return m.size == 0 })
}

// withFleet runs f beside a fresh set of services.
func (b *bench) withFleet(ctx context.Context, config fleet.Config, f func(*fleet.Fleet) error) error {
	b.fleets++
	config.Dir = filepath.Join(b.Dir, fmt.Sprintf("fleet-%d", b.fleets))
	config.Kubeconfig, config.Rest, config.Namespace = b.cluster.Kubeconfig(), b.cluster.RestConfig(), serverNamespace
	services, err := fleet.Start(ctx, config)
	if err != nil {
		return err
	}
	defer services.Stop()
	if b.fleets == 1 {
		if err := b.jobs.defaultLocation(ctx, filepath.Join(b.Dir, "objects")); err != nil {
			return err
		}
	}
	return f(services)
}

// isFilled reports whether the objects of that size are there because their backup was measured.
func (b *bench) isFilled(size int) bool { return slices.Contains(b.Sizes, size) }

// namespaceOfHuge has the objects of 900 KB.
const namespaceOfHuge = "bench-huge"

func namespaceOf(size int) string { return fmt.Sprintf("bench-%d", size) }

func (b *bench) measureSize(ctx context.Context, size int) error {
	namespace := namespaceOf(size)
	_, _ = fmt.Fprintf(b.Log, "%d objects of %d bytes\n", size, objectBytes)
	if err := b.createObjects(ctx, namespace, size, objectBytes); err != nil {
		return err
	}
	err := b.withFleet(ctx, fleet.Config{}, func(services *fleet.Fleet) error { return b.measureBackup(ctx, services, namespace, size) })
	if err != nil || size != b.Restore {
		return err
	}
	return b.withFleet(ctx, fleet.Config{}, func(services *fleet.Fleet) error { return b.measureRestore(ctx, services, size) })
}

// createObjects creates the objects.
func (b *bench) createObjects(ctx context.Context, namespace string, count, bytes int) error {
	if err := b.jobs.createNamespace(ctx, namespace); err != nil {
		return err
	}
	return seed.Bulk(ctx, b.cluster.RestConfig(), seed.BulkOptions{Namespace: namespace, Count: count, Size: bytes})
}

// backupRounds is how often raw list and backup follow one another; the fastest of each counts,
// because single times are noisy.
const backupRounds = 3

func (b *bench) measureBackup(ctx context.Context, services *fleet.Fleet, namespace string, size int) error {
	runner := services.Of("backup-runner")[0]
	before, err := cpuTime(runner.Pid())
	if err != nil {
		return err
	}
	var listed, backedUp time.Duration
	for round := range backupRounds {
		took, err := rawList(ctx, b.cluster.RestConfig(), namespace)
		if err != nil {
			return err
		}
		listed = shorterTime(listed, took)
		times, err := b.jobs.runBackup(ctx, backupOf(namespace, round), namespace)
		if err != nil {
			return err
		}
		backedUp = shorterTime(backedUp, times.done)
	}
	after, err := cpuTime(runner.Pid())
	if err != nil {
		return err
	}
	peak, err := peakRSS(runner.Pid())
	if err != nil {
		return err
	}
	b.figures.Set(fmt.Sprintf("backup.wall_ratio.%d", size), backedUp.Seconds()/listed.Seconds())
	b.figures.Set(fmt.Sprintf("backup.cpu_ms_per_object.%d", size), float64((after-before).Microseconds())/1000/float64(size*backupRounds))
	b.figures.Set(fmt.Sprintf("backup.peak_rss_mib.%d", size), peak)
	if size == b.Sizes[0] {
		return b.measureStart(ctx)
	}
	return nil
}

// backupOf names the backup of a round; the first one, which a restore may use, is called like its
// namespace.
func backupOf(namespace string, round int) string {
	if round == 0 {
		return namespace
	}
	return fmt.Sprintf("%s-%d", namespace, round+1)
}

// shorterTime returns the shorter one; zero is no time yet.
func shorterTime(best, took time.Duration) time.Duration {
	if best == 0 {
		return took
	}
	return min(best, took)
}

// measureStart backs up a namespace with next to nothing in it.
func (b *bench) measureStart(ctx context.Context) error {
	if err := b.createObjects(ctx, "bench-small", 1, objectBytes); err != nil {
		return err
	}
	times, err := b.jobs.runBackup(ctx, "bench-small", "bench-small")
	if err != nil {
		return err
	}
	b.figures.Set("start.inprogress_ms", float64(times.inProgress.Milliseconds()))
	b.figures.Set("start.completed_ms", float64(times.done.Milliseconds()))
	return nil
}

func (b *bench) measureHuge(ctx context.Context, count int) error {
	_, _ = fmt.Fprintf(b.Log, "%d objects of %d bytes\n", count, hugeBytes)
	if err := b.createObjects(ctx, namespaceOfHuge, count, hugeBytes); err != nil {
		return err
	}
	return b.withFleet(ctx, fleet.Config{}, func(services *fleet.Fleet) error {
		if _, err := b.jobs.runBackup(ctx, namespaceOfHuge, namespaceOfHuge); err != nil {
			return err
		}
		peak, err := peakRSS(services.Of("backup-runner")[0].Pid())
		if err == nil {
			b.figures.Set("backup.peak_rss_mib.huge", peak)
		}
		return err
	})
}
