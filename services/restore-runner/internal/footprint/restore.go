package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
	"github.com/holdfast-io/holdfast/pkg/kube/resource"
	"github.com/holdfast-io/holdfast/pkg/service"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/outcome"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/plan"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore"
	"github.com/holdfast-io/holdfast/services/restore-runner/internal/restore/volumes"
)

const (
	// memoryLimit and garbagePercent are restore-runner's own.
	memoryLimit    = 64 << 20
	garbagePercent = 60

	timeout     = 10 * time.Minute
	recordBatch = 1000
)

// restoreAll restores everything of the manifest in dir, writes the files of the restore, and
// prints the peak.
func restoreAll(ctx context.Context, dir, server string, e estate) error {
	service.LimitMemory(memoryLimit)
	service.CollectGarbageAt(garbagePercent)
	b, err := openBackup(ctx, filepath.Join(dir, manifestFile), e)
	if err != nil {
		return err
	}
	config := restore.Config{
		Request: restore.Request{Backup: "b", Restore: "r", UID: "r", Spec: &velerov1.RestoreSpec{}},
		Content: restore.Content{Source: b},
		Cluster: restore.Cluster{REST: &rest.Config{Host: server}, Clock: clock.RealClock{}, TerminatingTimeout: timeout, ResourceTimeout: timeout},
		Records: restore.Records{History: &outcome.History{}, Dir: dir},
	}
	if err := planRestore(ctx, b, &config); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log.gz"))
	if err != nil {
		return err
	}
	config.Recorder = outcome.NewRecorder(outcome.NewLog(log, "velero/r"), config.Clock, recordBatch, dir)
	config.Recorder.SetPlan(config.Plan)
	config.Recorder.Planned(&outcome.Planned{})
	stop := keepOutcomes(ctx, config.Recorder, dir)
	began := config.Clock.Now()
	err = errors.Join(restore.Run(ctx, config), stop())
	if counts := config.Recorder.Counts(); err == nil && (counts.Done != counts.Total || counts.Errors > 0) {
		err = fmt.Errorf("%d of %d objects have an outcome, %d errors", counts.Done, counts.Total, counts.Errors)
	}
	if err = errors.Join(err, publishFiles(config.Recorder, dir), config.Recorder.Close(), log.Close(), b.file.Close()); err != nil {
		return err
	}
	peak, err := peakRSS()
	_, _ = fmt.Fprintf(os.Stdout, "%d objects in %s, peak in MiB:\n%.1f\n", config.Recorder.Counts().Total, config.Clock.Since(began).Round(time.Second), peak)
	return err
}

// planRestore plans the restore.
func planRestore(ctx context.Context, b *syntheticBackup, config *restore.Config) error {
	survey, err := plan.ReadSurvey(ctx, b)
	if err != nil {
		return err
	}
	service.RaiseMemoryLimit(int64(survey.Objects) * plan.HeapPerObject)
	if config.Catalog, err = resource.Discover(ctx, config.REST); err != nil {
		return err
	}
	if config.Volumes, err = volumes.Decide(ctx, survey.Volumes, b.Read, volumes.Taken{}, true); err != nil {
		return err
	}
	filter, err := selection.NewFilter(selection.Spec{}, []string{"*"}, survey.Resolver(config.Catalog))
	if err != nil {
		return err
	}
	config.Plan, err = plan.Build(ctx, b, plan.Config{Filter: filter, Claim: config.Volumes.Claim})
	return err
}

// keepOutcomes stores outcomes as they come, until the returned function is called.
func keepOutcomes(ctx context.Context, r *outcome.Recorder, dir string) (stop func() error) {
	records, done := &outcome.Dir{Path: dir}, make(chan struct{})
	var group sync.WaitGroup
	var failed error
	group.Go(func() {
		for failed == nil {
			select {
			case <-done:
				failed = r.Flush(ctx, records)
				return
			case <-r.Wanted():
				failed = r.Flush(ctx, records)
			}
		}
	})
	return func() error { close(done); group.Wait(); return failed }
}

// publishFiles writes the files of the restore.
func publishFiles(r *outcome.Recorder, dir string) error {
	errs := []error{r.Files().CloseLog()}
	for name, write := range map[string]func(io.Writer) error{"results.gz": r.Files().WriteResults, "list.gz": r.Files().WriteResourceList} {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		zip := gzip.NewWriter(file)
		errs = append(errs, write(zip), zip.Close(), file.Close())
	}
	return errors.Join(errs...)
}

// peakRSS returns the largest resident set that the process has had, in MiB (VmHWM of
// proc_pid_status(5)).
func peakRSS() (float64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}
	return 0, errors.New("no VmHWM in /proc/self/status")
}
