package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// hold lets the first backup run long enough for what happens meanwhile.
const hold = "delay 3s"

// PauseLeader stops the leading queue-scheduler at the point of an admission, lets the other one
// admit overlapping backups, and wakes the first while one of them runs. It returns nil when all
// end like the undisturbed ones and no two ever ran at once.
func (b *Bed) PauseLeader(ctx context.Context, c Case) error {
	base, err := b.Baseline(ctx, c.Scenario)
	if err != nil {
		return err
	}
	b.jobs++
	name := fmt.Sprintf("%s-%03d", c.Scenario, b.jobs)
	watching, stop := context.WithCancel(ctx)
	overlaps := make(chan error, 1)
	go func() { overlaps <- b.apiClient.checkRunsAlone(watching, name, 1+len(followers)) }()
	facts, err := b.observeOverlapping(ctx, c.Point, name)
	if err == nil {
		err = base.Compare(facts)
	}
	if err != nil {
		stop() // what the watch misses is not waited for
		err = fmt.Errorf("%w%s", err, b.logTails(c.Service()))
	}
	err = errors.Join(err, <-overlaps, b.points.clearPoints())
	stop()
	return err
}

// observeOverlapping begins, wakes the stopped leader while a backup runs, and observes the end.
func (b *Bed) observeOverlapping(ctx context.Context, point, name string) (_ Facts, err error) {
	if err := errors.Join(b.points.armPoint(point, Stop, 1), b.points.armPoint("backup-runner/discovered", hold, 1)); err != nil {
		return nil, err
	}
	if err := beginOverlap(ctx, b, name); err != nil {
		return nil, err
	}
	m, err := b.awaitReached(ctx, point)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Signal(syscall.SIGCONT)) }() // does nothing to a process that runs
	if err := b.apiClient.awaitRunningBackup(ctx, name); err != nil {
		return nil, err
	}
	if err := m.Signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	return observeOverlap(ctx, b, name)
}

// awaitRunningBackup waits until one of the backups of an overlap runs.
func (a *apiClient) awaitRunningBackup(ctx context.Context, name string) error {
	return pollUntil(ctx, patience, "a backup of "+name+" runs", func() (bool, error) {
		for _, suffix := range append([]string{""}, followers...) {
			backup := &velerov1.Backup{}
			if _, err := a.getObject(ctx, name+suffix, backup); err != nil {
				return false, err
			}
			if backup.Status.Phase == velerov1.BackupPhaseInProgress {
				return true, nil
			}
		}
		return false, nil
	})
}
